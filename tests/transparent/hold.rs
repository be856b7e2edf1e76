//! The client's first packet waits for the server's answer: the client sees the server's own answer.

use std::io::ErrorKind;
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::boxes::*;
use crate::harness::*;
use crate::network::*;
use crate::streams::*;

/// ECONNREFUSED means that the reset was the first answer: after a SYN-ACK it would be ECONNRESET (RFC 9293, 3.10.7).
#[test]
fn a_closed_port_refuses() {
    each(Told::default(), |pair, family| {
        let address = SocketAddr::new(pair.row.left("server", family), NOBODY);
        assert_eq!(pair.fails(address).kind(), ErrorKind::ConnectionRefused, "far: {:?}", pair.kind);
        pair.all_closed(address, "refused");
        let (mut client, mut server) = pair.connect(family);
        talk(&mut client, &mut server);
    });
}

/// Refused connections occupy no session place.
#[test]
fn refusals_take_no_place() {
    let Some(mut pair) = Pair::new(Far::Nobody, Told { settings: "[limits]\nsessions = 1\n", ..Told::default() })
    else {
        return;
    };
    for family in BOTH {
        let address = SocketAddr::new(pair.row.left("server", family), NOBODY);
        for _ in 0..3 {
            assert_eq!(pair.fails(address).kind(), ErrorKind::ConnectionRefused);
            pair.all_closed(address, "refused");
        }
        assert!(is_cut(&pair.connect(family).1));
        pair.near.relay.closed();
    }
    let metrics = pair.near.relay.ask("/metrics");
    for line in ["sessions_open{listener=\"caught\"} 0\n", "reason=\"refused\"} 6\n"] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

/// The far end of the link says by ICMP that there is no way to the server.
#[test]
fn an_unreachable_host_is_unreachable() {
    each(Told::default(), |pair, family| {
        let address = SocketAddr::new(pair.row.left("server", family), 9);
        pair.row["far"].ip(&format!("route add unreachable {}\n", address.ip()));
        let kind = pair.fails(address).kind();
        assert!(matches!(kind, ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable), "{kind} {:?}", pair.kind);
        pair.all_closed(address, "unreachable");
    });
}

/// Until the server has answered, the client knows nothing.
#[test]
fn nobody_answers_before_the_server() {
    some(Told { settings: "[timeouts]\nhold = \"20s\"\n", ..Told::default() }, |pair, family| {
        let server = &pair.row["server"];
        server.nft(NO_FIRST_PACKETS);
        let (listener, address) = pair.row.server(family);
        let client = pair.row["client"].try_connecting(address);
        eventually("the server to be asked again", || (server.counter("silence", "others") > 1).then_some(()));
        assert_eq!(server.counter("silence", "clients"), 0, "the packet has not waited");
        let states = pair.row["client"].run("ss", &["-Htan"], "");
        assert!(states.contains("SYN-SENT") && !states.contains("ESTAB"), "{states}");
        server.nft("delete table inet silence");
        let mut client = join(client).unwrap();
        let mut server = accept(&listener);
        talk(&mut client, &mut server);
        assert!(is_cut(&server));
    });
}

#[test]
fn where_a_server_is_silent_the_packet_is_passed_by() {
    some(Told { settings: "[timeouts]\nhold = \"300ms\"\n", ..Told::default() }, |pair, family| {
        pair.row["server"].nft(ONLY_CLIENTS);
        // The client may need a second first packet while a relay behind us does not know yet that the client has given up.
        if pair.kind == Far::Nobody {
            pair.row["client"].nft(ONCE);
        }
        let (listener, address) = pair.row.server(family);
        for _ in 0..2 {
            let began = Instant::now();
            let (mut client, mut server) = pair.connect_to(&listener, address);
            let took = began.elapsed();
            assert!(took < Duration::from_secs(5), "far: {:?}: {took:?}", pair.kind);
            assert!(!is_cut(&server), "far: {:?}", pair.kind);
            talk(&mut client, &mut server);
        }
        assert_eq!(pair.near.relay.next(|event| event["event"] == "closed")["end"], "timed_out");
        assert!(pair.near.relay.sessions().is_empty());
    });
}

/// The server does not answer at all: after `hold` the relay lets the first packet pass, and the client stays in SYN-SENT.
#[test]
fn silence_stays_silence() {
    let Some(mut pair) = Pair::new(Far::Nobody, Told { settings: "[timeouts]\nhold = \"200ms\"\n", ..Told::default() })
    else {
        return;
    };
    pair.row["server"].nft("table inet silence { chain input { type filter hook input priority 0; drop; }; }");
    let address = SocketAddr::new(pair.row.left("server", Family::V4), 9);
    let asking = pair.row["client"].try_connecting(address);
    pair.all_closed(address, "timed_out");
    let passed = |metrics: &str| metrics.lines().any(|line| line.contains("passed") && line.contains("silent"));
    eventually("it to be passed by", || passed(&pair.near.relay.ask("/metrics")).then_some(()));
    assert!(!asking.is_finished());
    assert!(pair.row["client"].run("ss", &["-Htan"], "").contains("SYN-SENT"));
    // Ends the wait: from now on the server refuses.
    pair.row["server"].nft("delete table inet silence");
    assert_eq!(join(asking).expect_err("nobody listens").kind(), ErrorKind::ConnectionRefused);
}

/// Accepts one connection after the other and resets it at once.
fn hang_up(listener: TcpListener) {
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            reset(stream);
        }
    });
}

#[test]
fn a_server_that_hangs_up_has_answered() {
    each(Told::default(), |pair, family| {
        let (listener, address) = pair.row.server(family);
        hang_up(listener);
        match pair.row["client"].try_connect(address) {
            Ok(mut client) => assert!(is_reset(&mut client), "far: {:?}", pair.kind),
            // It was so quick that connect(2) has seen it.
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "far: {:?}", pair.kind),
        }
        for closed in pair.closed(address) {
            // The latter where the dial itself has seen it.
            assert!(["reset_by_server", "reset"].iter().any(|end| closed["end"] == *end), "{closed}");
        }
        let metrics = pair.near.relay.ask("/metrics");
        assert!(!metrics.contains("reason=\"failed\""), "that is no failure of ours: {metrics}");
    });
}

/// A client that went away while its packet waited leaves nothing behind: the server is told.
#[test]
fn a_client_that_gave_up_is_forgotten() {
    let settings = "[limits]\nsessions = 1\n[timeouts]\nhold = \"20s\"\nhandshake = \"1s\"\n";
    let Some(mut pair) = Pair::new(Far::Nobody, Told { settings, ..Told::default() }) else { return };
    let server = &pair.row["server"];
    server.nft(NO_FIRST_PACKETS);
    let (listener, address) = pair.row.server(Family::V4);
    let patience = Duration::from_millis(100);
    let gave_up = pair.row["client"].inside(|| TcpStream::connect_timeout(&address, patience));
    assert_eq!(gave_up.expect_err("silence").kind(), ErrorKind::TimedOut);
    server.nft("delete table inet silence");
    let mut server = accept(&listener);
    assert!(is_reset(&mut server));
    assert_eq!(pair.closed(address)[0]["end"], "left_early");
    // Its place is free again.
    assert!(is_cut(&pair.connect(Family::V6).1));
}

/// The cheaper modes: the client is told "connected" at once, and a failure is a reset.
#[test]
fn without_hold_a_failure_is_a_reset() {
    for mode in ["strict", "early"] {
        let listener = format!("connect = \"{mode}\"");
        some(Told { listener: &listener, ..Told::default() }, |pair, family| {
            let address = SocketAddr::new(pair.row.left("server", family), NOBODY);
            match pair.row["client"].try_connect(address) {
                Ok(mut client) => assert!(is_reset(&mut client), "{mode}, far: {:?}", pair.kind),
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{mode}, far: {:?}", pair.kind),
            }
            let closed = pair.closed(address);
            assert_eq!(closed.last().expect("a relay")["end"], "refused", "{closed:?}");
            let (mut client, mut server) = pair.connect(family);
            talk(&mut client, &mut server);
            assert!(is_cut(&server));
        });
    }
}

/// No listener is there, on the box itself.
#[test]
fn the_box_answers_for_itself() {
    let Some(pair) = Pair::new(Far::Transparent, Told::default()) else { return };
    for family in BOTH {
        for ip in [pair.row.left("near", family), pair.row.right("near", family), pair.row.left("far", family)] {
            assert_eq!(pair.fails(SocketAddr::new(ip, 9)).kind(), ErrorKind::ConnectionRefused, "{ip}");
        }
        let listener = pair.row["near"].inside(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))).unwrap();
        let address = SocketAddr::new(pair.row.left("near", family), listener.local_addr().unwrap().port());
        let (mut client, mut server) = pair.connect_to(&listener, address);
        talk(&mut client, &mut server);
        assert!(pair.near.relay.sessions().is_empty());
    }
}
