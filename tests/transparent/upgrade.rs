//! Upgrades of a transparent relay: the rules stay in force, and held SYNs get their verdicts.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use crate::harness::*;
use crate::network::*;
use crate::relays::*;
use crate::streams::*;

const NAMES: &[&str] = &["client", "near", "server"];

/// Opens a connection, and checks that the relay intercepts it.
fn connect_intercepted(row: &Row, family: Family) -> (TcpStream, TcpStream) {
    let (listener, address) = row.server(family);
    let mut client = row["client"].connect(address);
    let mut server = accept_with_data(&listener, &mut client);
    exchange_messages(&mut client, &mut server);
    assert!(is_relayed(&server), "no relay in the path");
    (client, server)
}

/// Accepts connections until one carries the client's byte. While a SYN is held during an upgrade, both processes dial
/// the server, and the connection of the old process is not handed over.
fn accept_with_data(listener: &TcpListener, client: &mut TcpStream) -> TcpStream {
    client.write_all(b"?").unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut all = Vec::new();
    with_timeouts(eventually("the client's byte", || {
        while let Ok((server, _)) = listener.accept() {
            server.set_nonblocking(true).unwrap();
            all.push(server);
        }
        let index = all.iter_mut().position(|server| server.read(&mut [0]).is_ok_and(|bytes| bytes > 0))?;
        Some(all.swap_remove(index))
    }))
}

#[test]
fn rules_stay_during_upgrades_and_end_with_the_last_process() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut near = RunningRelay::start(&row["near"], &intercepting_listener(""));
    let mut running = BOTH.map(|family| connect_intercepted(&row, family));
    for _ in 0..2 {
        let upgraded = std::thread::scope(|scope| {
            // Clients connect until the new process has replaced the old one.
            let upgrading = Arc::new(());
            let clients: [_; 4] = std::array::from_fn(|_| {
                let (row, upgrading) = (&row, Arc::downgrade(&upgrading));
                let families = BOTH.iter().cycle().take_while(move |_| upgrading.strong_count() > 0);
                scope.spawn(move || families.for_each(|family| drop(connect_intercepted(row, *family))))
            });
            let serving = near.serving_process();
            signal(serving, "USR2");
            near.relay.upgraded();
            drop(upgrading);
            clients.into_iter().try_for_each(|client| client.join())
        });
        upgraded.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        for (client, server) in &mut running {
            exchange_messages(client, server);
        }
    }
    let before = near.relay.id();
    let [one, other] = running;
    transfer_both_ways(one.0, one.1, 2_000_000, 2_000_000);
    transfer_both_ways(other.0, other.1, 2_000_000, 2_000_000);
    wait_process_end(before);
    for family in BOTH {
        drop(connect_intercepted(&row, family));
    }
    let serving = near.serving_process();
    signal(serving, "TERM");
    wait_process_end(serving);
    let left = row["near"].run("nft", &["list", "ruleset"], "");
    assert!(!left.contains("ekiden"), "{left}");
}

/// The old process gives the verdict, and the new process serves the connection.
#[test]
fn held_first_packet_survives_an_upgrade() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut near =
        RunningRelay::start(&row["near"], &format!("[timeouts]\nhold = \"20s\"\n{}", intercepting_listener("")));
    row["server"].nft(DROP_ALL_SYNS);
    let (listener, address) = row.server(Family::V4);
    let client = row["client"].try_connecting(address);
    eventually("the first packet to be held", || {
        row["near"].run("ss", &["-Htan"], "").contains("SYN-SENT").then_some(())
    });
    near.relay.signal("USR2");
    near.relay.upgraded();
    row["server"].nft("delete table inet silence");
    let mut client = join(client).unwrap();
    assert!(is_relayed(&accept_with_data(&listener, &mut client)), "no relay in the path");
}

/// The new process cannot bind one of its listeners.
#[test]
fn failed_upgrade_keeps_rules_and_listeners() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut near = RunningRelay::start(&row["near"], &intercepting_listener(""));
    let _taken = row["near"].inside(|| TcpListener::bind("[::]:7009")).unwrap();
    let other = intercepting_listener("").replace("7001", "7009").replace("\"caught\"", "\"more\"");
    near.configure(&format!("{}{other}", intercepting_listener("")));
    near.relay.signal("USR2");
    let failed = near.relay.next(|event| event["event"] == "upgrade_failed");
    assert!(failed["why"].as_str().unwrap().contains("cannot listen"), "{failed}");
    for family in BOTH {
        drop(connect_intercepted(&row, family));
    }
    near.configure(&intercepting_listener(""));
    near.relay.signal("USR2");
    near.relay.upgraded();
    for family in BOTH {
        drop(connect_intercepted(&row, family));
    }
}
