//! HTTP/3 with aioquic through two relays.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::harness::*;
use crate::programs;
use crate::relays::*;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/udp/http3.py");

const ENVIRONMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tools/aioquic/bin/python3");

#[test]
fn http3_downloads_through_two_relays() {
    if programs::is_any_missing(&["python3", "openssl"]) {
        return;
    }
    // Debian 12 has no package of aioquic, so `scripts/setup test` creates a virtual environment with it.
    let has_aioquic = |python: &&str| {
        Command::new(python)
            .args(["-c", "import aioquic"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|end| end.success())
    };
    let Some(python) = [ENVIRONMENT, "python3"].into_iter().find(has_aioquic) else {
        return skipped("aioquic is missing, scripts/setup test installs it");
    };
    let folder = Folder::new();
    let [key, certificate] = ["key", "certificate"].map(|name| folder.0.join(name));
    self_signed(&key, &certificate, "localhost");
    let mut server = Command::new(python);
    server.args([SCRIPT, "server"]).arg(&certificate).arg(&key).stdout(Stdio::piped());
    let mut server = KillOnDrop(server.spawn().unwrap());
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let mut chain = Chain::start(2);
    let relay = chain.home.address().port().to_string();
    let client = Command::new(python).args([SCRIPT, "client", &relay, port.trim()]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&client.stdout), "whole\n", "{}", String::from_utf8_lossy(&client.stderr));
    let closed = chain.relays[1].closed();
    assert_eq!((&closed["end"], &closed["path"]), (&"finished".into(), &"udp".into()), "{closed}");
}
