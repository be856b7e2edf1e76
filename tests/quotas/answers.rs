//! Session limits and quotas: the answers to clients, and the ends of running sessions.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use crate::fixture::*;
use crate::harness::*;
use crate::programs::{is_any_missing, run_successfully, run_to_end};

/// The sessions of a user on all listeners count toward one limit; other users have their own limit.
#[test]
fn user_session_limit_spans_all_listeners() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let mut fixture = Fixture::new(&format!("[user.alice]\nsessions = 1\nrate = \"1Mbit/s\"\n{LISTENER}{LISTENER}"));
    let download = fixture.start_endless("alice", 0);
    eventually("the start of a download", || (download.bytes() > 0).then_some(()));
    let refused = run_to_end(&mut fixture.curl("alice", "socks5h", 1, &[&fixture.url(10)]));
    assert!(refused.code == 97 && refused.err.contains("(2)"), "not allowed (RFC 1928, 6): {refused:?}");
    let closed = fixture.relay.closed();
    assert_eq!((&closed["end"], &closed["user"]), (&"session_limit".into(), &"alice".into()), "{closed}");
    assert_eq!(closed["detail"], "the session limit of this user (1) is reached");
    let target = closed["target"].clone();
    assert!(target.is_string(), "{closed}");
    let refused = run_to_end(&mut fixture.curl("alice", "http", 1, &["--include", &fixture.url(10)]));
    let text = String::from_utf8(refused.out).unwrap();
    assert!(
        text.starts_with("HTTP/1.1 429 Too Many Requests")
            && text.contains("the session limit of this user (1) is reached"),
        "{text}"
    );
    let closed = fixture.relay.closed();
    assert_eq!((&closed["end"], &closed["target"]), (&"session_limit".into(), &target), "{closed}");
    run_successfully(&mut fixture.curl("bob", "socks5h", 1, &[&fixture.url(10)]));
    let account = fixture.account("user", "alice");
    assert_eq!((account["sessions"].as_u64(), account["refused_for_sessions"].as_u64()), (Some(1), Some(2)));
    drop(download);
    eventually("the end of the download", || (fixture.account("user", "alice")["sessions"] == 0).then_some(()));
    run_successfully(&mut fixture.curl("alice", "socks5h", 1, &[&fixture.url(10)]));
}

#[test]
fn listener_session_limit_spans_all_users() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let mut fixture = Fixture::new(&format!("{LISTENER}sessions = 1\nrate = \"1Mbit/s\"\nname = \"door\"\n"));
    let download = fixture.start_endless("alice", 0);
    eventually("the start of a download", || (download.bytes() > 0).then_some(()));
    assert_eq!(fixture.download("bob", 10).code, 97);
    assert_eq!(fixture.relay.closed()["detail"], "the session limit of this listener (1) is reached");
    assert_eq!(fixture.account("listener", "door")["sessions"], 1);
}

/// The running session is reset at the last byte of the quota, and the answer to the next session contains the time at
/// which the quota starts again.
#[test]
fn exhausted_quota_resets_sessions_and_explains_rejections() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let limits = "[limits]\nusage_file = \"USAGE\"\n[user.alice]\nquota = \"300KiB/day\"\n";
    let mut fixture = Fixture::new(&format!("{limits}{LISTENER}{LISTENER}"));
    assert_eq!(fixture.download("alice", 100_000).code, 0);
    let first = transferred_bytes(&fixture.relay.closed());
    assert_eq!(fixture.used(), first);
    let cut = fixture.download("alice", 1_000_000);
    assert!([18, 56].contains(&cut.code), "a partial file, or a reset: {cut:?}");
    let closed = fixture.relay.closed();
    assert_eq!((&closed["end"], transferred_bytes(&closed) + first), (&"over_quota".into(), 300 << 10), "{closed}");
    let why = closed["detail"].as_str().unwrap();
    assert!(why.starts_with("the quota of this user, 300KiB/day, is used up until 20"), "{why}");
    assert!(why.ends_with("T00:00:00Z"), "{why}");

    assert_eq!(fixture.download("alice", 1).code, 97);
    assert_eq!(fixture.relay.closed()["end"], "over_quota");
    // The quota also applies at the other listener, to a forwarded request and to CONNECT.
    for arguments in [&["--include"][..], &["--include", "--proxytunnel"]] {
        let url = fixture.url(1);
        let response = run_to_end(&mut fixture.curl("alice", "http", 1, &[arguments, &[url.as_str()]].concat()));
        let text = String::from_utf8(response.out).unwrap();
        assert!(text.starts_with("HTTP/1.1 429 Too Many Requests"), "{text}");
        let seconds = text.lines().find_map(|line| line.strip_prefix("Retry-After: ")).unwrap().trim();
        assert!((1..=86_401).contains(&seconds.parse::<u32>().unwrap()), "{text}");
        if !arguments.contains(&"--proxytunnel") {
            assert!(text.contains("This relay refuses the request: the quota of this user, 300KiB/day"), "{text}");
        }
        fixture.relay.closed();
    }
    let used = fixture.relay.next(|event| event["event"] == "quota_used");
    assert_eq!(
        (&used["scope"], &used["name"], &used["quota"]),
        (&"user".into(), &"alice".into(), &"300KiB/day".into())
    );
    assert_eq!(fixture.account("user", "alice")["refused_for_quota"], 3);
    for (series, value) in [
        ("ekiden_quota_used_bytes{scope=\"user\",name=\"alice\"}", 300 << 10),
        ("ekiden_user_sessions_refused_total{user=\"alice\",reason=\"over_quota\"}", 3),
        ("ekiden_user_sessions_open{user=\"alice\"}", 0),
    ] {
        assert_eq!(fixture.relay.metric(series), Some(value), "{series}");
    }
    assert_eq!(fixture.download("bob", 1_000_000).code, 0, "the quota of one user does not apply to another user");
}

/// A stream whose last byte is the last byte of the quota is complete, and ends without a reset.
#[test]
fn stream_of_exactly_the_quota_ends_cleanly() {
    let (listener, target) = server();
    let folder = Folder::new();
    let text = format!(
        "version = 1\n[limits]\nusage_file = \"{}\"\n[[listener]]\nbind = \"127.0.0.1:0\"\nkind = \"tcp\"\ntarget = \"{target}\"\n\
         quota = \"10000B/month\"\n",
        folder.0.join("usage.db").display()
    );
    let mut relay = Relay::run(&["-c", folder.write("ekiden.toml", text).to_str().unwrap()], 1);
    let (mut client, mut server) = (relay.connect(), accept(&listener));
    client.write_all(&pattern(4000)).unwrap();
    assert!(read_exactly(&mut server, 4000) == pattern(4000));
    server.write_all(&pattern(6000)).unwrap();
    drop(server);
    assert_eq!(read_remaining(&mut client), (pattern(6000), Ending::Clean));
    drop(client);
    assert_eq!(relay.closed()["end"], "finished");
    // The reset may come before connect(2) has returned.
    let refused = TcpStream::connect(relay.address()).and_then(|mut stream| stream.read(&mut [0]));
    assert!(matches!(refused, Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset));
    assert_eq!(relay.closed()["end"], "over_quota");
}

/// In a section, the end of a stream is sent as a record or a chunk, which does not count toward the quota.
#[test]
fn the_end_of_a_framed_stream_needs_no_quota() {
    for encrypt in [true, false] {
        let (key, folder, (listener, target)) = (Key::new(), Folder::new(), server());
        let text = "version = 1\nprivate_key = \"KEY\"\n[limits]\nusage_file = \"USAGE\"\n[[listener]]\nkind = \"section\"\n\
                    bind = \"127.0.0.1:0\"\nquota = \"10000B/day\"\n";
        let usage = folder.0.join("usage.db").display().to_string();
        let text = text.replace("KEY", key.file.to_str().unwrap()).replace("USAGE", &usage);
        let mut far = Relay::run(&["-c", folder.write("far.toml", text).to_str().unwrap()], 1);
        let hop = format!("section://{}?key={}&encrypt={encrypt}", far.address(), key.public);
        let near = Relay::run(&["-L", "auto://127.0.0.1:0", "-F", &hop], 1);
        let mut client = socks5(near.address(), target).unwrap();
        let mut server = accept(&listener);
        client.write_all(&pattern(4000)).unwrap();
        assert!(read_exactly(&mut server, 4000) == pattern(4000));
        server.write_all(&pattern(6000)).unwrap();
        assert!(read_exactly(&mut client, 6000) == pattern(6000));
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_remaining(&mut server), (Vec::new(), Ending::Clean), "encrypt={encrypt}");
        drop(server);
        assert_eq!(read_remaining(&mut client), (Vec::new(), Ending::Clean));
        let closed = far.closed();
        assert_eq!((&closed["end"], transferred_bytes(&closed)), (&"finished".into(), 10_000), "{closed}");

        assert_eq!(socks5(near.address(), target).map(drop), Err(2), "the quota is used up");
    }
}

/// When a reload removes a listener, the limits of the listener no longer apply to its running sessions.
#[test]
fn running_sessions_lose_the_limits_of_a_removed_listener() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let limits = "[limits]\nusage_file = \"USAGE\"\n";
    let mut fixture = Fixture::new(&format!("{limits}{LISTENER}name = \"door\"\nrate = \"1Mbit/s\"\n"));
    // The download takes 160 s at the rate of the listener. It is not endless: without a limit it would fill the file
    // system.
    let mut download = fixture.start_download("alice", 0, 20_000_000);
    eventually("the start of a download", || (download.bytes() > 0).then_some(()));
    assert_eq!(fixture.account("listener", "door")["rate_bits_per_second"], 1_000_000);
    fixture.reload(&format!("{limits}{LISTENER}name = \"gate\"\n"));
    eventually("the end of a download without a limit", || (download.bytes() == 20_000_000).then_some(()));
    assert_eq!(download.exit_code(), 0);
}

/// The limits of a section listener apply to the sessions of other relays; the dialling relay reports the cause to its
/// client.
#[test]
fn session_limit_of_the_next_relay_is_passed_back() {
    let (key, folder, target) =
        (Key::new(), Folder::new(), serve(|mut stream| while let Ok(1..) = stream.read(&mut [0]) {}));
    let text =
        "version = 1\nprivate_key = \"KEY\"\n[[listener]]\nkind = \"section\"\nbind = \"127.0.0.1:0\"\nsessions = 1\n";
    let file = folder.write("far.toml", text.replace("KEY", key.file.to_str().unwrap()));
    let mut far = Relay::run(&["-c", file.to_str().unwrap()], 1);
    let hop = format!("section://{}?key={}", far.address(), key.public);
    let mut near = Relay::run(&["-L", "auto://127.0.0.1:0", "-F", &hop], 1);
    let first = socks5(near.address(), target).expect("a session within the limit");
    assert_eq!(socks5(near.address(), target).map(drop), Err(2), "not allowed (RFC 1928, 6)");
    let closed = [near.closed(), far.closed()];
    assert_eq!(closed.each_ref().map(|closed| closed["end"].clone()), ["session_limit"; 2], "{closed:?}");
    drop(first);
    far.closed();
    assert!(socks5(near.address(), target).is_ok());
}

/// Starts a SOCKS5 UDP association. Returns its TCP connection and the address of the relay for datagrams.
fn associate(relay: &Relay) -> (TcpStream, SocketAddr) {
    let mut tcp = relay.connect();
    tcp.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    let reply = read_exactly(&mut tcp, 12);
    (tcp, SocketAddr::from(([127, 0, 0, 1], u16::from_be_bytes([reply[10], reply[11]]))))
}

/// Binds a UDP socket as the server. Returns the socket, and a datagram to it with the SOCKS5 UDP header.
fn datagram_server(payload: &[u8]) -> (UdpSocket, Vec<u8>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let port = socket.local_addr().unwrap().port().to_be_bytes();
    (socket, [&[0, 0, 0, 1, 127, 0, 0, 1], &port[..], payload].concat())
}

/// The flows have reserved the rate far in advance; datagrams do not wait for the end of these reservations.
#[test]
fn datagrams_pass_beside_flows_that_use_the_whole_rate() {
    const FLOWS: usize = 60;
    let relay = Relay::listen(&["auto://127.0.0.1:0?rate=1Mbit/s"]);
    let sink = serve(|mut stream| while let Ok(1..) = stream.read(&mut [0; 65_536]) {});
    let flows: Vec<_> = (0..FLOWS).map(|_| socks5(relay.address(), sink).unwrap()).collect();
    let sending =
        flows.into_iter().map(|mut flow| std::thread::spawn(move || while flow.write_all(&[7; 65_536]).is_ok() {}));
    let sending: Vec<_> = sending.collect();
    let has_moved = |session: &serde_json::Value| session["bytes_up"].as_u64().unwrap() > 2000;
    eventually("all flows at the configured rate", || {
        let sessions = relay.sessions();
        (sessions.len() == FLOWS && sessions.iter().all(has_moved)).then_some(())
    });
    let (server, datagram) = datagram_server(&[7; 100]);
    let (_tcp, bound) = associate(&relay);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let begun = Instant::now();
    for _ in 0..10 {
        client.send_to(&datagram, bound).unwrap();
        assert_eq!(server.recv(&mut [0; 200]).unwrap(), 100);
    }
    assert_took(begun.elapsed(), Duration::ZERO, TEST_TIMEOUT);
    drop(relay);
    sending.into_iter().for_each(join);
}

/// Datagrams count toward the quota, datagrams above the rate are dropped, and an exhausted quota ends the association.
#[test]
fn datagrams_have_the_limits_of_their_listener() {
    let folder = Folder::new();
    let text = format!(
        "version = 1\n[limits]\nusage_file = \"{}\"\n[[listener]]\nname = \"door\"\nbind = \"127.0.0.1:0\"\n\
         quota = \"4000B/day\"\nrate = \"8kbit/s\"\n",
        folder.0.join("usage.db").display()
    );
    let mut relay = Relay::run(&["-c", folder.write("ekiden.toml", text).to_str().unwrap()], 1);
    let (mut tcp, bound) = associate(&relay);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (server, datagram) = datagram_server(&[7; 1000]);
    // Each datagram of 1000 bytes uses the rate of one second. The fourth datagram exhausts the quota 3 s after the
    // first, less the burst of 100 ms and the 250 ms by which a datagram may be ahead of the rate.
    let begun = Instant::now();
    eventually("the end of the association", || {
        client.send_to(&datagram, bound).unwrap();
        relay.sessions().is_empty().then_some(())
    });
    assert!(begun.elapsed() >= Duration::from_millis(2650), "{:?}", begun.elapsed());
    let dropped = relay.metric("ekiden_udp_datagrams_dropped_total{listener=\"door\",reason=\"over_limit\"}");
    assert!(dropped > Some(0), "{dropped:?}");
    for _ in 0..4 {
        assert_eq!(server.recv(&mut [0; 2000]).unwrap(), 1000);
    }
    let closed = relay.closed();
    assert_eq!((&closed["end"], &closed["bytes_up"]), (&"over_quota".into(), &4000.into()), "{closed}");
    assert!(matches!(tcp.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset));
}
