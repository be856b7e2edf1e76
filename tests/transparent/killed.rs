//! A relay of a pair is killed, or a client or server is lost: the other ends of its sessions are reset, new
//! connections work, and keepalive probes do not end live sessions.

use std::net::TcpStream;

use serde_json::Value;

use super::harness::*;
use super::hold::FAILED_DIALS;
use super::network::*;
use super::relays::*;
use super::streams::*;

/// The sessions are idle or transfer bytes.
#[test]
fn kill_of_a_relay_resets_its_sessions() {
    for kind in Far::ALL {
        for victim in ["near", "far"] {
            let Some(pair) = Pair::new(kind, PairOptions::default()) else { return };
            if victim == "far" && pair.far.is_none() {
                continue;
            }
            let mut silent = BOTH.map(|family| pair.connect(family));
            for (client, server) in &mut silent {
                exchange_messages(client, server);
            }
            let (mut client, server) = pair.connect(Family::V4);
            let writer = flood(&server);
            read_exactly(&mut client, 1 << 20);
            let Pair { near, far, row: _row, .. } = pair;
            let (dead, _other) = if victim == "near" { (Some(near), far) } else { (far, Some(near)) };
            drop(dead.map(RunningRelay::kill));
            assert_eq!(read_remaining(&mut client).1, Ending::Reset, "{kind:?}, {victim}");
            join(writer);
            for (client, server) in &mut silent {
                assert!(is_reset(client) && is_reset(server), "{kind:?}, {victim}");
            }
        }
    }
}

/// New connections pass through the near relay alone, or without a relay.
#[test]
fn connections_work_while_the_far_relay_is_down() {
    for kind in [Far::Transparent, Far::Section, Far::Encrypted] {
        let Some(mut pair) = Pair::new(kind, PairOptions::default()) else { return };
        let site = pair.far.take().expect("a relay").kill();
        for family in BOTH.into_iter().chain(BOTH) {
            let (mut client, mut server) = pair.connect(family);
            exchange_messages(&mut client, &mut server);
            assert_eq!(is_relayed(&server), kind == Far::Transparent, "{kind:?}");
        }
        assert_eq!(pair.near.relay.metric(FAILED_DIALS).is_some(), kind.is_dialled(), "{kind:?}");
        pair.far = Some(site.start(&pair.row["far"]));
        for family in BOTH {
            eventually("a connection through the far relay", || {
                let (mut client, mut server) = pair.connect(family);
                exchange_messages(&mut client, &mut server);
                // The target differs between attempts, so an earlier session does not count.
                let target = canonical(server.local_addr().unwrap()).to_string();
                let sessions = pair.far.as_ref().expect("a relay").relay.sessions();
                sessions.iter().any(|session| session["target"] == target).then_some(())
            });
        }
        let near = &mut pair.near.relay;
        near.signal("TERM");
        let count = |name: &str, events: &[Value]| events.iter().filter(|event| event["event"] == name).count();
        let events = near.remaining_events();
        let times = if kind.is_dialled() { 1 } else { 0 };
        assert_eq!(["bypass_began", "bypass_ended"].map(|name| count(name, &events)), [times, times], "{events:?}");
    }
}

#[test]
fn connections_work_while_the_near_relay_is_down() {
    for kind in Far::ALL {
        let Some(pair) = Pair::new(kind, PairOptions::default()) else { return };
        let Pair { kind, row, near, far } = pair;
        let site = near.kill();
        let (listener, address) = row.server(Family::V4);
        let mut client = row["client"].connect(address);
        let mut server = accept(&listener);
        exchange_messages(&mut client, &mut server);
        assert_eq!(is_relayed(&server), kind == Far::Transparent);
        let near = site.start(&row["near"]);
        let pair = Pair { kind, row, near, far };
        // A connection that began without the relay continues without it.
        exchange_messages(&mut client, &mut server);
        for family in BOTH {
            let (mut client, mut server) = pair.connect(family);
            exchange_messages(&mut client, &mut server);
            assert!(is_relayed(&server));
            assert_eq!(pair.near.relay.sessions().len(), 1);
            drop((client, server));
            eventually("the end of the session", || pair.near.relay.sessions().is_empty().then_some(()));
        }
    }
}

const ALIVE: &str = "target_profile = \"alive\"\n[profile.alive]\nkeepalive = \"1s\"\nkeepalive_interval = \"1s\"\n\
    keepalive_count = 2\n";

/// Rules that count packets without payload: keepalive probes and their answers.
const COUNT_PROBES: &str = "table inet probes { counter probes { }; chain input { type filter hook input priority 0; \
    tcp flags == ack meta length < 80 counter name probes; }; }";

/// A session that has been idle until each of its ends has received three packets without payload, and then still
/// carries bytes.
fn idle_session(far: Far, family: Family) -> Option<(Pair, TcpStream, TcpStream)> {
    let pair =
        Pair::new(far, PairOptions { settings: ALIVE, listener: "profile = \"alive\"", ..PairOptions::default() })?;
    let (mut client, mut server) = pair.connect(family);
    exchange_messages(&mut client, &mut server);
    let ends = ["client", "server"].map(|name| &pair.row[name]);
    ends.iter().for_each(|end| end.nft(COUNT_PROBES));
    for end in ends {
        eventually("keepalive probes", || (end.counter("probes", "probes") >= 3).then_some(()));
    }
    exchange_messages(&mut client, &mut server);
    Some((pair, client, server))
}

const DROP_ALL: &str = "table inet cut { chain forward { type filter hook forward priority 0; drop; }; \
    chain input { type filter hook input priority 0; drop; }; }";

#[test]
fn lost_server_is_detected_by_keepalive() {
    let Some((mut pair, mut client, server)) = idle_session(Far::Router, Family::V4) else { return };
    pair.row["server"].nft(DROP_ALL);
    assert!(is_reset(&mut client));
    pair.all_closed(canonical(server.local_addr().unwrap()), "server_lost");
}

#[test]
fn lost_client_is_detected_by_keepalive() {
    let Some((mut pair, client, mut server)) = idle_session(Far::Section, Family::V6) else { return };
    pair.row["client"].nft(DROP_ALL);
    assert!(is_reset(&mut server));
    let closed = pair.closed(client.peer_addr().unwrap());
    assert_eq!((&closed[0]["end"], &closed[1]["end"]), (&"client_lost".into(), &"reset_by_client".into()));
}
