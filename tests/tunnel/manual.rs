//! The configuration in docs/tunnel.md works as printed.

use std::path::Path;

use crate::harness::*;
use crate::network::*;
use crate::relays::RunningRelay;
use crate::sites::*;

const MANUAL: &str = include_str!("../../docs/tunnel.md");

/// The configuration of the manual for a site, with the networks, addresses, file names and keys of the test.
fn fill_in(own: &Key, other: &Key, folder: &Path, site: u8) -> String {
    let (_, block) = MANUAL.split_once("```toml\n").expect("a file");
    let (text, rest) = block.split_once("```").expect("the end of the block");
    assert!(!rest.contains("```toml"), "the manual has a file without a test");
    let swapped =
        text.replace("site2.example", "10.0.1.{far}").replace("192.168.1.", "{here}").replace("192.168.2.", "{there}");
    let (here, there, far) = if site == 1 { ("10.0.0.", "10.0.2.", "2") } else { ("10.0.2.", "10.0.0.", "1") };
    swapped
        .replace("{here}", here)
        .replace("{there}", there)
        .replace("{far}", far)
        .replace("site2", if site == 1 { "site2" } else { "site1" })
        .replace("/etc/ekiden/key", &own.file.display().to_string())
        .replace("/etc/ekiden/peers", &folder.join("peers").display().to_string())
        .replace("PUBLIC-KEY-OF-SITE-2", &other.public)
        .replace("version = 1\n", "")
}

#[test]
fn tunnel_of_the_manual_works() {
    let Some(row) = hosts(&[Family::V4]) else { return };
    let (one, two) = (Key::new(), Key::new());
    let start = |host: &str, (own, other): (&Key, &Key), site: u8| {
        let folder = Folder::new();
        folder.write("peers", format!("{} other\n", other.public));
        let text = fill_in(own, other, &folder.0, site);
        (RunningRelay::start(&row[host], &text), folder)
    };
    let _left = start("left", (&one, &two), 1);
    let _right = start("right", (&two, &one), 2);
    let (listener, address) = row.server(Family::V4);
    let mut client = row["client"].connect(address);
    let mut server = accept(&listener);
    assert_eq!(canonical(server.peer_addr().unwrap()), client.local_addr().unwrap());
    exchange(&mut client, &mut server);
}
