//! Hours of silence, in seconds: who lives is kept, who is gone is noticed, and the other end is told.

use std::net::TcpStream;

use crate::boxes::*;
use crate::harness::*;
use crate::network::*;
use crate::streams::*;

const ALIVE: &str = "target_profile = \"alive\"\n[profile.alive]\nkeepalive = \"1s\"\nkeepalive_interval = \"1s\"\n\
    keepalive_count = 2\n";

/// Packets without a byte of data: probes, and answers to them.
const PROBES: &str = "table inet probes { counter probes { }; chain input { type filter hook input priority 0; \
    tcp flags == ack meta length < 80 counter name probes; }; }";

/// A session that has been silent for several probes of either section.
fn kept(far: Far, family: Family) -> Option<(Pair, TcpStream, TcpStream)> {
    let pair = Pair::new(far, Told { settings: ALIVE, listener: "profile = \"alive\"", ..Told::default() })?;
    let (mut client, mut server) = pair.connect(family);
    talk(&mut client, &mut server);
    let ends = ["client", "server"].map(|name| &pair.row[name]);
    ends.iter().for_each(|end| end.nft(PROBES));
    for end in ends {
        eventually("probes", || (end.counter("probes", "probes") >= 3).then_some(()));
    }
    talk(&mut client, &mut server);
    Some((pair, client, server))
}

const CUT: &str = "table inet cut { chain forward { type filter hook forward priority 0; drop; }; \
    chain input { type filter hook input priority 0; drop; }; }";

#[test]
fn a_server_that_is_gone() {
    let Some((mut pair, mut client, server)) = kept(Far::Nobody, Family::V4) else { return };
    pair.row["server"].nft(CUT);
    assert!(is_reset(&mut client));
    pair.all_closed(plain(server.local_addr().unwrap()), "server_lost");
}

#[test]
fn a_client_that_is_gone() {
    let Some((mut pair, client, mut server)) = kept(Far::Section, Family::V6) else { return };
    pair.row["client"].nft(CUT);
    assert!(is_reset(&mut server));
    let closed = pair.closed(client.peer_addr().unwrap());
    assert_eq!((&closed[0]["end"], &closed[1]["end"]), (&"client_lost".into(), &"reset_by_client".into()));
}
