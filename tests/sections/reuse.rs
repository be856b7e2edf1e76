//! Sections that carry one session after another: no byte of a session reaches another session, also after failures,
//! and peers of protocol version 1 use one connection per session.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use ekiden_proto::addr::ClientAddr;
use ekiden_proto::key::PrivateKey;
use ekiden_proto::wire::section::record::{HEADER_LENGTH, TAG_LENGTH};
use ekiden_proto::wire::section::{
    Hello, NoiseInitiator, NoiseResponder, Open, OpenAnswer, Purpose, RecordKey, TraceId, TransportKeys, Versions,
};

use crate::harness::*;
use crate::relays::*;
use crate::streams::*;

const FIRST_VERSION: Versions = Versions { oldest: 1, newest: 1 };

/// Number of sessions that took a connection with this `result`, from the metrics of `relay`.
fn connections_taken(relay: &Relay, result: &str) -> usize {
    metric_sum(relay, "ekiden_ready_connections_total", &format!("result=\"{result}\""))
}

/// Number of used connections that wait for a session.
fn used_connections(relay: &Relay) -> usize {
    metric_sum(relay, "ekiden_ready_used{", "")
}

fn wait_used(relay: &Relay, count: usize) {
    eventually(&format!("{count} used connections in the pool"), || (used_connections(relay) == count).then_some(()));
}

/// Sizes around the record boundaries of the copied start and of splice(2), and a size of many chunks; either side ends
/// first, or both at once.
#[test]
fn consecutive_sessions_reuse_one_connection_without_errors() {
    for encrypt in [false, true] {
        let mut chain = Layout { relays: 3, encrypt, ..Layout::default() }.start();
        let sizes = [(0, 0), (1, 0), (0, 1), (65_535, 65_537), (3_000_000, 100_000), (100_000, 3_000_000)];
        for (round, (up, down)) in sizes.into_iter().enumerate() {
            let (client, server) = chain.pair();
            transfer_both_ways(client, server, up, down);
            for relay in [&chain.home].into_iter().chain(&chain.relays[..2]) {
                wait_used(relay, 1);
                assert_eq!(connections_taken(relay, "reused"), round, "encrypt: {encrypt}");
            }
            let closed = [session_closed(&mut chain.home), session_closed(&mut chain.relays[0])];
            let earlier = [&closed[0]["up"], &closed[1]["down"], &closed[1]["up"], &closed[0]["down"]];
            assert_eq!(
                earlier.map(|section| section["earlier_sessions"].as_u64().unwrap() as usize),
                [round, round, round, 0]
            );
            // The counters are those of one session: at most a few thousand segments, fewer than of all sessions so
            // far.
            assert!(closed[1]["down"]["segments_out"].as_u64().unwrap() < 200 + down as u64 / 500, "{}", closed[1]);
        }
    }
}

/// The closing event, the status table and the metrics name the start of a session's sections in the same terms. The
/// counters are those of the session, although the section has sent 50 large segments before.
#[test]
fn running_session_shows_how_its_sections_started() {
    let mut chain = Chain::start_with(1, false);
    for earlier in 0..3 {
        let (mut client, mut server) = chain.pair();
        exchange_messages(&mut client, &mut server);
        let (word, cell) = [("cold", "cold"), ("reused", "reused once"), ("reused", "reused 2 times")][earlier];
        for (relay, side, start) in [
            (&chain.home, "up", (word, earlier)),
            (&chain.relays[0], "down", (word, earlier)),
            (&chain.home, "down", ("cold", 0)),
        ] {
            let section = &relay.sessions()[0][side];
            assert_eq!(
                (&section["start"], &section["earlier_sessions"]),
                (&start.0.into(), &start.1.into()),
                "{section}"
            );
            assert!(section["segments_out"].as_u64().unwrap() < 20 && section["jump"].is_null(), "{section}");
        }
        let table = chain.home.status(&[]);
        let is_row =
            |line: &str| line.contains("  server  ") && line.contains(&format!("  {cell} ")) && line.ends_with('-');
        assert!(table.lines().any(is_row), "no {cell} in {table}");
        transfer_both_ways(client, server, 3_000_000, 3_000_000);
        wait_used(&chain.home, 1);
        assert_eq!(session_closed(&mut chain.home)["up"]["start"], word);
    }
    let starts = |labels: &str| metric_sum(&chain.home, "ekiden_section_starts_total", labels);
    assert_eq!(starts("section=\"up\",start=\"cold\""), 1);
    assert_eq!(starts("section=\"up\",start=\"reused\""), 2);
    assert_eq!(starts("section=\"down\",start=\"cold\""), 3);
}

/// The receiver limits the first session on a section. It must not be reported as the limit of the next session, whose
/// client writes 1.6 MB/s.
#[test]
fn earlier_session_on_the_section_is_not_reported_as_limit() {
    let mut chain = Chain::start_with(1, false);
    let (client, mut server) = chain.pair();
    let writer = send(&client, pattern(80_000_000));
    eventually("a receiver that holds the section back", || {
        let held = chain.home.sessions()[0]["up"]["rwnd_limited_seconds"].as_f64()?;
        (held > 0.5).then_some(())
    });
    assert_eq!(read_all(&mut server).len(), 80_000_000);
    join(writer);
    drop((client, server));
    wait_used(&chain.home, 1);
    session_closed(&mut chain.home);

    let (mut client, server) = chain.pair();
    let reader = std::thread::spawn(move || read_all(&mut { server }).len());
    for _ in 0..25 {
        client.write_all(&[7; 32_768]).unwrap();
        std::thread::park_timeout(Duration::from_millis(20));
    }
    drop(client);
    assert_eq!(join(reader), 25 * 32_768);
    let closed = session_closed(&mut chain.home);
    assert_eq!(
        (&closed["up"]["start"], &closed["limited"]),
        (&"reused".into(), &"down:client_slow".into()),
        "{closed}"
    );
}

/// While one direction is still open, a concurrent session uses another section.
#[test]
fn section_with_a_half_closed_session_is_not_reused() {
    for encrypt in [false, true] {
        let chain = Chain::start_with(2, encrypt);
        for client_ends in [false, true] {
            let (mut client, mut server) = chain.pair();
            exchange_messages(&mut client, &mut server);
            let (first, last) = if client_ends { (&client, &mut server) } else { (&server, &mut client) };
            first.shutdown(Shutdown::Write).unwrap();
            assert_eq!(read_all(last), b"");
            let (other_client, other_server) = chain.pair();
            transfer_both_ways(other_client, other_server, 100_000, 100_000);
            let sent = pattern(200_000);
            let writer = send(last, sent.clone());
            assert!(read_all(if client_ends { &mut client } else { &mut server }) == sent);
            join(writer);
        }
        wait_used(&chain.home, 2);
    }
}

/// The reset occurs before the first byte of a session, between bytes, or when the session is half-closed.
#[test]
fn reset_section_is_not_reused() {
    for encrypt in [false, true] {
        for (moment, client_resets) in [(0, true), (0, false), (1, true), (1, false), (2, true), (2, false)] {
            let chain = Chain::start_with(2, encrypt);
            let (client, server) = chain.pair();
            transfer_both_ways(client, server, 1000, 1000);
            wait_used(&chain.home, 1);
            let (mut client, mut server) = chain.pair();
            if moment > 0 {
                exchange_messages(&mut client, &mut server);
            }
            if moment > 1 {
                let ended = if client_resets { &mut client } else { &mut server };
                ended.shutdown(Shutdown::Write).unwrap();
                assert_eq!(read_all(if client_resets { &mut server } else { &mut client }), b"");
            }
            let (resets, mut survivor) = if client_resets { (client, server) } else { (server, client) };
            reset(resets);
            if moment < 2 {
                assert!(is_reset(&mut survivor), "moment {moment}");
            }
            eventually("the end of the session", || chain.home.sessions().is_empty().then_some(()));
            drop(survivor);
            assert_eq!(
                (used_connections(&chain.home), connections_taken(&chain.home, "reused")),
                (0, 1),
                "moment {moment}"
            );
            let (client, server) = chain.pair();
            transfer_both_ways(client, server, 100_000, 100_000);
        }
    }
}

/// The kill of a relay closes its idle sections, which the next session detects before it sends a byte.
#[test]
fn kill_of_a_relay_between_sessions_fails_no_session() {
    let layout = || Layout { relays: 1, ..Layout::default() };
    let mut chain = layout().start();
    for _ in 0..3 {
        let (client, server) = chain.pair();
        transfer_both_ways(client, server, 1000, 1000);
        wait_used(&chain.home, 1);
        chain.relays[0].signal("KILL");
        chain.relays[0].exit_code();
        chain.relays[0] = layout().relay(&chain.sites, 1);
        let (client, server) = chain.pair();
        transfer_both_ways(client, server, 1000, 1000);
        wait_used(&chain.home, 1);
    }
}

/// Bug: the old process waited for further sessions on its sections, so the sessions of the home relay stayed there
/// until the drain deadline reset them. The home relay must learn of the end of the section together with the end of
/// the session, whichever side ends the session first.
#[test]
fn old_process_of_an_upgrade_carries_no_further_session_on_a_section() {
    for (encrypt, server_ends) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut chain = Chain::start_with(1, encrypt);
        let (mut client, mut server) = chain.pair();
        exchange_messages(&mut client, &mut server);
        chain.relays[0].signal("USR2");
        chain.relays[0].upgraded();
        let (first, mut last) = if server_ends { (server, client) } else { (client, server) };
        first.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut last), b"");
        drop(last);
        let wait_idle = || eventually("the end of the session", || chain.home.sessions().is_empty().then_some(()));
        wait_idle();
        let (client, server) = chain.pair();
        assert_eq!(connections_taken(&chain.home, "reused"), 0, "encrypt: {encrypt}, server ends: {server_ends}");
        drop((client, server));
        // Each ready connection to the old process carries one session.
        eventually("a session of the new process", || {
            wait_idle();
            let _pair = chain.pair();
            (!chain.relays[0].sessions().is_empty()).then_some(())
        });
    }
}

/// In early mode the client's bytes follow OPEN at once, so an OPEN that meets the end of its section is not repeated.
#[test]
fn upgrades_lose_no_session_on_used_sections() {
    for encrypt in [false, true] {
        let listener_keys = "kind = \"socks\"\nconnect = \"early\"\n".to_owned();
        let mut chain = Layout { encrypt, listener_keys, ..Layout::default() }.start();
        let mut upgraded = chain.relays.remove(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut serving = upgraded.id();
                for _ in 0..3 {
                    signal(serving, "USR2");
                    serving = upgraded.upgraded();
                }
            });
            take_turns(&chain, 500, u32::MAX);
        });
    }
}

/// Each OPEN is checked against the current rules, also on a section that has carried sessions.
#[test]
fn revoked_peer_opens_no_session_on_a_used_section() {
    let (site, home) = (Site::new(), Site::new());
    let peers = site.admit(&[(&home.key.public, "home")]);
    let mut relay = site.relay("", &format!("peers = {peers:?}\n"));
    let at_home = home.home(&(site.table("far", "") + &route_all_through("way", &["far".to_owned()])), AUTO);
    let (client, far) = pair(&at_home);
    transfer_both_ways(client, far, 1000, 1000);
    wait_used(&at_home, 1);
    std::fs::write(&peers, "").unwrap();
    relay.signal("HUP");
    relay.next(|event| event["event"] == "reloaded");
    let (_listener, target) = server();
    assert!(socks5(at_home.address(), target).is_err());
    let refused = relay.next(|event| event["event"] == "closed" && event["end"] == "unauthenticated");
    assert!(refused["detail"].as_str().unwrap().contains("not among the peers"), "{refused}");
}

/// Runs four concurrent clients with `rounds` sessions each. Each session must receive its own bytes, which differ from
/// those of all other sessions; every `resets`th session of a client ends with a reset instead.
fn take_turns(chain: &Chain, rounds: u32, resets: u32) {
    let target = echo_server();
    let home = chain.home.address();
    std::thread::scope(|scope| {
        for number in 0..4_u32 {
            scope.spawn(move || {
                for round in 0..rounds {
                    let mut client = socks5(home, target).unwrap();
                    let sign = (number << 24 | round).to_be_bytes();
                    let own = sign.repeat(1 + round as usize % 250 * 2);
                    client.write_all(&own).unwrap();
                    if round % resets == resets - 1 {
                        reset(client);
                        continue;
                    }
                    client.shutdown(Shutdown::Write).unwrap();
                    assert!(read_all(&mut client) == own, "client {number}, session {round}");
                }
            });
        }
    });
    eventually("the end of all sessions", || chain.home.sessions().is_empty().then_some(()));
}

#[test]
fn sessions_on_reused_sections_get_their_own_bytes() {
    for encrypt in [false, true] {
        let chain = Chain::start_with(2, encrypt);
        take_turns(&chain, 250, u32::MAX);
        assert!(connections_taken(&chain.home, "reused") > 900, "{}", connections_taken(&chain.home, "reused"));
        assert!(used_connections(&chain.home) <= 4, "{}", used_connections(&chain.home));
    }
}

#[test]
#[ignore = "nine minutes: make soak"]
fn one_million_sessions_get_their_own_bytes_and_leak_nothing() {
    for encrypt in [false, true] {
        let chain = Chain::start_with(2, encrypt);
        let measure = || [&chain.home, &chain.relays[0]].map(|relay| (relay.descriptors(), relay.resident_kib()));
        // Fills the pools of connections and pipes before the first measurement.
        take_turns(&chain, 5_000, 97);
        let before = measure();
        take_turns(&chain, 120_000, 97);
        for ((descriptors, memory), (descriptors_before, memory_before)) in measure().into_iter().zip(before) {
            // A leak of one descriptor in a thousand sessions would be 480 descriptors.
            assert!(descriptors < descriptors_before + 50, "{descriptors} descriptors, {descriptors_before} before");
            assert!(memory < memory_before + 4_000, "{memory} KiB, {memory_before} before");
        }
    }
}

/// On an encrypted section, a bridge carries the requests and returns the section when the server has closed. A plain
/// section carries the requests of one server connection, and ends with that connection.
#[test]
fn encrypted_section_is_reused_for_requests_to_other_servers() {
    for encrypt in [false, true] {
        let chain = Chain::start_with(1, encrypt);
        for round in 0..3 {
            let (listener, target) = server();
            let mut client = chain.home.connect();
            write!(client, "GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n").unwrap();
            let mut server = accept(&listener);
            assert!(read_head(&mut server).starts_with("GET / HTTP/1.1\r\n"));
            server.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok").unwrap();
            drop(server);
            assert!(read_head(&mut client).starts_with("HTTP/1.1 200 OK\r\n"));
            assert_eq!(read_all(&mut client), b"ok");
            drop(client);
            eventually("the end of the session", || chain.home.sessions().is_empty().then_some(()));
            if encrypt {
                wait_used(&chain.home, 1);
            }
            assert_eq!(connections_taken(&chain.home, "reused"), if encrypt { round } else { 0 });
        }
    }
}

/// The session of a version 1 dialler has no chunks, and ends with FIN.
#[test]
fn version_1_dialler_is_served_without_chunks() {
    let (site, home) = (Site::new(), Site::new());
    let peers = site.admit(&[(&home.key.public, "home")]);
    let mut relay = site.relay("", &format!("peers = {peers:?}\n"));
    let (listener, target) = server();
    let mut section = connect(site.address);
    let (own, theirs) = (private_key(&home.key), private_key(&site.key).public_key());
    let (initiator, hello) = NoiseInitiator::begin(&own, &theirs, FIRST_VERSION);
    section.write_all(&hello).unwrap();
    let mut keys = initiator.finish(&read_hello(&mut section)).unwrap();
    assert_eq!(keys.version, 1);
    let open = Open {
        early: false,
        encrypt: false,
        reusable: false,
        hops_left: 3,
        trace: TraceId([7; 16]),
        client: ClientAddr("192.0.2.7:4000".parse().unwrap()),
        path: Vec::new(),
        purpose: Purpose::Stream(target.into()),
    };
    section.write_all(&seal(&mut keys.send_key, &open.write())).unwrap();
    let mut server = accept(&listener);
    let answer = OpenAnswer::read(&read_record(&mut section, &mut keys.open)).unwrap();
    assert_eq!(answer.outcome, Ok(()));
    transfer_both_ways(section, server.try_clone().unwrap(), 200_000, 300_000);
    assert_eq!(read_remaining(&mut server), (Vec::new(), Ending::Clean));
    assert_eq!(session_closed(&mut relay)["end"], "finished");

    let mut section = connect(site.address);
    let (initiator, hello) = NoiseInitiator::begin(&own, &theirs, FIRST_VERSION);
    section.write_all(&hello).unwrap();
    let mut keys = initiator.finish(&read_hello(&mut section)).unwrap();
    section.write_all(&seal(&mut keys.send_key, &Open { reusable: true, ..open }.write())).unwrap();
    read_remaining(&mut section);
    let refused = relay.next(|event| event["event"] == "closed" && event["end"] == "bad_handshake");
    assert!(refused["detail"].as_str().unwrap().contains("version 1"), "{refused}");
}

/// The bytes of a session to a version 1 listener are sent without chunks.
#[test]
fn version_1_listener_gets_one_connection_per_session() {
    let (site, home) = (Site::new(), Site::new());
    let key = private_key(&site.key);
    let address = serve(move |section| serve_first_version(section, &key));
    let settings = site.table_at(address, "far", "") + &route_all_through("way", &["far".to_owned()]);
    let at_home = home.home(&settings, AUTO);
    for _ in 0..3 {
        let mut client = socks5(at_home.address(), echo_server()).unwrap();
        let sent = pattern(200_000);
        let writer = send(&client, sent.clone());
        assert!(read_all(&mut client) == sent);
        join(writer);
    }
    eventually("the end of all sessions", || at_home.sessions().is_empty().then_some(()));
    assert_eq!((used_connections(&at_home), connections_taken(&at_home, "reused")), (0, 0));
}

/// Serves a section as a relay of version 1 that echoes.
fn serve_first_version(mut section: TcpStream, key: &PrivateKey) {
    let Some(hello) = try_read_hello(&mut section) else { return };
    let (responder, _) = NoiseResponder::read(key, &Hello::parse(&hello).unwrap().0, FIRST_VERSION).unwrap();
    let (keys, answer) = responder.accept(None);
    section.write_all(&answer).unwrap();
    let TransportKeys { mut send_key, open: mut open_key, .. } = keys;
    // Ready connections that no session uses end without OPEN.
    let Some(open) = try_read_record(&mut section, &mut open_key) else { return };
    assert!(!Open::read(&open).unwrap().reusable);
    let answer = OpenAnswer { outcome: Ok(()), relay_times: vec![Duration::ZERO] };
    section.write_all(&seal(&mut send_key, &answer.write())).unwrap();
    let mut bytes = vec![0; 65_536];
    while let Ok(count @ 1..) = section.read(&mut bytes) {
        section.write_all(&bytes[..count]).unwrap();
    }
}

fn private_key(key: &Key) -> PrivateKey {
    PrivateKey::from_file(&std::fs::read_to_string(&key.file).unwrap()).unwrap()
}

fn read_hello(section: &mut TcpStream) -> Hello {
    Hello::parse(&try_read_hello(section).expect("a hello")).unwrap().0
}

fn seal(key: &mut RecordKey, plaintext: &[u8]) -> Vec<u8> {
    let mut record = [&[0; HEADER_LENGTH], plaintext, &[0; TAG_LENGTH]].concat();
    key.seal(&mut record);
    record
}

fn read_record(section: &mut TcpStream, key: &mut RecordKey) -> Vec<u8> {
    try_read_record(section, key).expect("a record")
}

fn try_read_record(section: &mut TcpStream, key: &mut RecordKey) -> Option<Vec<u8>> {
    let mut record = vec![0; HEADER_LENGTH];
    section.read_exact(&mut record).ok()?;
    let length = usize::from(u16::from_be_bytes([record[0], record[1]]));
    record.extend(read_exactly(section, length));
    let plaintext = key.open(&mut record).unwrap();
    Some(record[plaintext].to_vec())
}
