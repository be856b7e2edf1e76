//! Upgrades of a relay that clients do not know of: the rules stay in force, and first packets get their verdicts.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::boxes::*;
use crate::harness::*;
use crate::network::*;
use crate::streams::*;

const NAMES: &[&str] = &["client", "near", "server"];

/// A connection that was caught.
fn caught(row: &Row, family: Family) -> (TcpStream, TcpStream) {
    let (listener, address) = row.server(family);
    let mut client = row["client"].connect(address);
    let mut server = taken(&listener, &mut client);
    talk(&mut client, &mut server);
    assert!(is_cut(&server), "it went by without a relay");
    (client, server)
}

/// The connection with the client's bytes. A first packet that waits during an upgrade is dialled for by both
/// processes, and the connection of the old one is not handed over.
fn taken(listener: &TcpListener, client: &mut TcpStream) -> TcpStream {
    client.write_all(b"?").unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut all = Vec::new();
    patient(eventually("the client's byte", || {
        while let Ok((server, _)) = listener.accept() {
            server.set_nonblocking(true).unwrap();
            all.push(server);
        }
        let taken = all.iter_mut().position(|server| server.read(&mut [0]).is_ok_and(|bytes| bytes > 0))?;
        Some(all.swap_remove(taken))
    }))
}

#[test]
fn the_rules_stay_in_force_and_go_with_the_last_process() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut near = Station::start(&row["near"], &catching(""));
    let mut running = BOTH.map(|family| caught(&row, family));
    for _ in 0..2 {
        let upgraded = std::thread::scope(|scope| {
            // All the time, until the other process serves, and a little longer.
            let clients = || (0..20).for_each(|number| drop(caught(&row, BOTH[number % 2])));
            let clients: [_; 4] = std::array::from_fn(|_| scope.spawn(clients));
            let serving = near.serves();
            signal(serving, "USR2");
            near.relay.upgraded();
            clients.into_iter().try_for_each(|client| client.join())
        });
        upgraded.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        for (client, server) in &mut running {
            talk(client, server);
        }
    }
    let before = near.relay.id();
    let [one, other] = running;
    exchange(one.0, one.1, 2_000_000, 2_000_000);
    exchange(other.0, other.1, 2_000_000, 2_000_000);
    ended(before);
    for family in BOTH {
        drop(caught(&row, family));
    }
    let serving = near.serves();
    signal(serving, "TERM");
    ended(serving);
    let left = row["near"].run("nft", &["list", "ruleset"], "");
    assert!(!left.contains("ekiden"), "{left}");
}

/// The process before gives the verdict, and the other one has the connection.
#[test]
fn a_first_packet_that_waits_is_not_lost() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut near = Station::start(&row["near"], &format!("[timeouts]\nhold = \"20s\"\n{}", catching("")));
    row["server"].nft(NO_FIRST_PACKETS);
    let (listener, address) = row.server(Family::V4);
    let client = row["client"].try_connecting(address);
    eventually("it to be held", || row["near"].run("ss", &["-Htan"], "").contains("SYN-SENT").then_some(()));
    near.relay.signal("USR2");
    near.relay.upgraded();
    row["server"].nft("delete table inet silence");
    let mut client = join(client).unwrap();
    assert!(is_cut(&taken(&listener, &mut client)), "it went by without a relay");
}

/// The new process cannot have it all: rules and listeners are the old one's again.
#[test]
fn a_failed_upgrade_leaves_everything_as_it_was() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut near = Station::start(&row["near"], &catching(""));
    let _taken = row["near"].inside(|| TcpListener::bind("[::]:7009")).unwrap();
    let other = catching("").replace("7001", "7009").replace("\"caught\"", "\"more\"");
    near.configure(&format!("{}{other}", catching("")));
    near.relay.signal("USR2");
    let failed = near.relay.next(|event| event["event"] == "upgrade_failed");
    assert!(failed["why"].as_str().unwrap().contains("cannot listen"), "{failed}");
    for family in BOTH {
        drop(caught(&row, family));
    }
    near.configure(&catching(""));
    near.relay.signal("USR2");
    near.relay.upgraded();
    for family in BOTH {
        drop(caught(&row, family));
    }
}
