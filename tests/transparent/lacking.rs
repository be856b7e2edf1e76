//! A kernel, or a host, without a queue for first packets: nothing can wait, and that is said.

use std::io::ErrorKind;

use crate::boxes::*;
use crate::harness::*;
use crate::network::*;
use crate::programs::skipped;
use crate::streams::*;

/// Programs that fail in the place of those of iptables.
fn without_iptables() -> Folder {
    let folder = Folder::new();
    for name in ["iptables", "ip6tables"] {
        for action in ["save", "restore"] {
            folder.program(&format!("{name}-{action}"), "#!/bin/sh\necho there is none >&2\nexit 3\n");
        }
    }
    folder
}

/// Here nftables has no queue, and iptables is what has it.
fn has_queue(host: &Host) -> bool {
    let rule = "table inet t { chain c { type filter hook prerouting priority 0; queue flags bypass to 1; }; }";
    let tried = host.inside(|| std::process::Command::new("nft").args(["-c", rule]).status());
    tried.expect("nft runs").success()
}

#[test]
fn nothing_is_held_and_all_the_rest_works() {
    let Some(row) = Row::new(&["client", "near", "server"]) else { return };
    if has_queue(&row["near"]) {
        return skipped("this kernel's nftables has a queue, so there is always one");
    }
    let programs = without_iptables();
    let site = site(&format!("[limits]\nsessions = 1\n{}", catching("")));
    let mut command = site.command();
    command.env("PATH", format!("{}:{}", programs.0.display(), std::env::var("PATH").unwrap()));
    let mut near = row["near"].inside(|| Relay::start(&mut command, 1));
    let warned = near.next(|event| event["event"] == "warning");
    assert!(warned["message"].as_str().unwrap().contains("strict"), "{warned}");
    for family in BOTH {
        let (listener, address) = row.server(family);
        let mut client = row["client"].connect(address);
        let mut server = accept(&listener);
        talk(&mut client, &mut server);
        assert!(is_cut(&server));
        // There is no way past the relay: the next one waits for a place.
        let mut waiting = row["client"].connect(address);
        near.next(|event| event["event"] == "accept_paused");
        drop((client, server));
        talk(&mut waiting, &mut accept(&listener));
        drop(waiting);
        close(listener);
        (0..2).for_each(|_| assert_eq!(near.closed()["end"], "finished"));
        match row["client"].try_connect(address) {
            Ok(mut client) => assert!(is_reset(&mut client)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        assert_eq!(near.closed()["end"], "refused");
    }
}
