//! ssh through `nc`, to an sshd started by the test: 10 MB in each direction.

use std::fs::File;
use std::process::Stdio;

use super::curl::assert_next_closed;
use super::is_skipped;
use super::programs::run_successfully;
use super::servers::Sshd;
use crate::harness::{Relay, pattern};

#[test]
fn ssh_through_nc_transfers_data_both_ways() {
    if is_skipped(&["ssh", "sshd", "ssh-keygen", "nc"]) {
        return;
    }
    let sshd = Sshd::start();
    let bytes = pattern(10_000_000);
    let file = sshd.folder.write("bytes", &bytes);
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    for protocol in ["5", "connect", "4"] {
        let nc = format!("nc -X {protocol} -x {} %h %p", relay.address());
        let out = run_successfully(&mut sshd.command(&nc, &format!("cat {}", file.display())));
        assert!(out == bytes, "nc -X {protocol}: {} bytes", out.len());
        let event = assert_next_closed(&mut relay, "finished", &sshd.address.to_string(), "direct");
        assert!(event["bytes_down"].as_u64() > Some(10_000_000), "{event}");

        let stdin = Stdio::from(File::open(&file).expect("the file is there"));
        let out = run_successfully(sshd.command(&nc, "cat").stdin(stdin));
        assert!(out == bytes, "nc -X {protocol}, both ways: {} bytes", out.len());
        let event = assert_next_closed(&mut relay, "finished", &sshd.address.to_string(), "direct");
        assert!(event["bytes_up"].as_u64() > Some(10_000_000), "{event}");
        assert!(event["bytes_spliced"].as_u64() > Some(15_000_000), "{event}");
    }
}
