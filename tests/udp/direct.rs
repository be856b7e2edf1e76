//! Datagrams that the relay sends to their targets directly, not through another relay.

use std::io::Read;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::client::*;
use crate::harness::*;
use crate::programs;

/// Both families at both sides of the relay, and several targets in one association.
#[test]
fn datagrams_and_answers_are_relayed_for_both_families() {
    let (v4, v6) = (udp_echo_server("127.0.0.1"), udp_echo_server("::1"));
    for listener in ["auto://127.0.0.1:0", "socks://[::1]:0"] {
        let mut relay = Relay::listen(&[listener]);
        let client = Client::new(relay.address());
        client.assert_echo(v4, b"one");
        client.assert_echo(v6, b"");
        client.assert_echo(v4, &pattern(1400));
        let [session] = &*relay.sessions() else { panic!("the relay does not have exactly one session") };
        assert_eq!((&session["path"], &session["bytes_up"]), (&"udp".into(), &1403.into()), "{session}");
        drop(client);
        let closed = relay.closed();
        assert_closed(&closed, "finished", 1403, 1412, 0);
        let series = |direction| {
            format!("ekiden_udp_payload_bytes_total{{listener={},direction=\"{direction}\"}}", closed["listener"])
        };
        assert_eq!(["up", "down"].map(|direction| relay.metric(&series(direction))), [Some(1403), Some(1412)]);
    }
}

#[test]
fn the_relay_resolves_names() {
    let server = udp_echo_server("127.0.0.1");
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let client = Client::new(relay.address());
    client.send(&name_header("a.localhost", server.port()), b"query");
    assert_eq!(client.receive(10), (header(server), b"re:query".to_vec()));
    drop(client);
    assert_closed(&relay.closed(), "finished", 5, 8, 0);
}

/// Regression: a name for which no lookup was started counted as being looked up, and was unusable for ten seconds.
#[test]
fn ninth_name_at_a_time_is_usable_after_the_lookups_of_the_others() {
    let server = udp_echo_server("127.0.0.1");
    let (release, wait) = channel::<()>();
    let names = name_server(move |query| {
        // Fails at once after `release` was dropped.
        let _ = wait.recv();
        answer_from(&[])(query)
    });
    let folder = Folder::new();
    let text =
        format!("version = 1\n[dns]\nservers = [\"{names}\"]\n[[listener]]\nname = \"door\"\nbind = \"127.0.0.1:0\"\n");
    let file = folder.write("ekiden.toml", text);
    let mut relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    let client = Client::new(relay.address());
    for number in 1..=8 {
        client.send(&name_header(&format!("name-{number}.example"), 53), b"query");
    }
    let ninth = name_header("a.localhost", server.port());
    client.send(&ninth, b"query");
    eventually("the drop of the ninth", || (dropped(&relay, "door", "over_limit") == 1).then_some(()));
    drop(release);
    eventually("the end of the lookups", || (dropped(&relay, "door", "unresolved") == 8).then_some(()));
    client.send(&ninth, b"query");
    assert_eq!(client.receive(10), (header(server), b"re:query".to_vec()));
    drop(client);
    assert_closed(&relay.closed(), "finished", 5, 8, 9);
}

#[test]
fn fragments_and_malformed_datagrams_are_dropped() {
    let server = udp_echo_server("127.0.0.1");
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let client = Client::new(relay.address());
    let mut fragment = header(server);
    fragment[2] = 1;
    client.send(&fragment, b"part");
    for malformed in [&b""[..], b"\0\0\0", b"\0\0\0\x02abcdefg", b"\0\0\0\x01\x7f\0\0\x01\0\0x"] {
        client.send(malformed, b"");
    }
    client.assert_echo(server, b"whole");
    drop(client);
    assert_closed(&relay.closed(), "finished", 5, 8, 5);
}

#[test]
fn access_rules_apply_to_datagrams() {
    let (denied, allowed) = (udp_echo_server("127.0.0.1"), udp_echo_server("127.0.0.1"));
    let deny = format!("auto://127.0.0.1:0?deny=*:{}&deny=denied.localhost", denied.port());
    let mut relay = Relay::listen(&[&deny]);
    let client = Client::new(relay.address());
    client.send(&header(denied), b"no");
    client.send(&name_header("denied.localhost", allowed.port()), b"no");
    client.assert_echo(allowed, b"yes");
    drop(client);
    assert_closed(&relay.closed(), "finished", 3, 6, 2);

    let mut open = Relay::listen(&["auto://127.0.0.1:0?allow_private=false"]);
    let client = Client::new(open.address());
    client.send(&header(allowed), b"no");
    // The rules also apply to the address to which a name resolves.
    client.send(&name_header("localhost", allowed.port()), b"no");
    eventually("both datagrams to be dropped", || (dropped(&open, "auto-0", "denied") == 2).then_some(()));
    drop(client);
    assert_closed(&open.closed(), "finished", 0, 0, 2);
}

/// Connections use `direct` while the preceding relay is unreachable. Datagrams cannot be sent through a SOCKS5 proxy
/// of another program, so they would always use `direct`.
#[test]
fn route_with_direct_only_as_fallback_drops_datagrams() {
    let (routed, server) = (udp_echo_server("127.0.0.1"), udp_echo_server("127.0.0.1"));
    let folder = Folder::new();
    let text = format!(
        "version = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\n[[relay]]\nname = \"far\"\nurl = \"socks5://127.0.0.1:9\"\n\
         [[route]]\nto = [\"*:{}\"]\npath = [\"far\", \"direct\"]\n",
        routed.port()
    );
    let file = folder.write("ekiden.toml", text);
    let mut relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    let client = Client::new(relay.address());
    client.send(&header(routed), b"no");
    client.assert_echo(server, b"yes");
    drop(client);
    assert_closed(&relay.closed(), "finished", 3, 6, 1);
}

/// Only the host of the client may send to the association, and only from the port of the client's first datagram.
#[test]
fn datagrams_of_other_hosts_and_ports_are_dropped() {
    let server = udp_echo_server("127.0.0.1");
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let client = Client::new(relay.address());
    let stranger = socket("127.0.0.2".parse().unwrap());
    stranger.send_to(&[&*header(server), b"mine"].concat(), client.relay).unwrap();
    client.assert_echo(server, b"first");
    // The first datagram of the client has fixed its port.
    let other = socket("127.0.0.1".parse().unwrap());
    other.send_to(&[&*header(server), b"mine"].concat(), client.relay).unwrap();
    client.assert_echo(server, b"second");
    drop(client);
    assert_closed(&relay.closed(), "finished", 11, 17, 1);
}

#[test]
fn only_hosts_that_the_client_has_sent_to_may_answer() {
    let server = socket("127.0.0.1".parse().unwrap());
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let client = Client::new(relay.address());
    client.send(&header(server.local_addr().unwrap()), b"hello");
    let (_, relayed_from) = server.recv_from(&mut [0; 16]).unwrap();
    let at = SocketAddr::new("127.0.0.1".parse().unwrap(), relayed_from.port());
    let stranger = socket("127.0.0.2".parse().unwrap());
    stranger.send_to(b"stranger", at).unwrap();
    // Another port of the server may answer, as in TFTP.
    let second = socket("127.0.0.1".parse().unwrap());
    second.send_to(b"welcome", at).unwrap();
    assert_eq!(client.receive(10), (header(second.local_addr().unwrap()), b"welcome".to_vec()));
    drop(client);
    assert_closed(&relay.closed(), "finished", 5, 7, 1);
}

/// The request contains the client's port, so datagrams from other ports of its host are dropped even before the first
/// datagram of the client.
#[test]
fn only_the_announced_client_port_is_served() {
    let server = udp_echo_server("127.0.0.1");
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let udp = socket("127.0.0.1".parse().unwrap());
    let (tcp, _, bound) = request_association(relay.address(), &header(udp.local_addr().unwrap())[3..]);
    let client = Client { tcp, udp, relay: bound.unwrap() };
    let other = socket("127.0.0.1".parse().unwrap());
    other.send_to(&[&*header(server), b"mine"].concat(), client.relay).unwrap();
    client.assert_echo(server, b"announced");
    drop(client);
    assert_closed(&relay.closed(), "finished", 9, 12, 0);
}

#[test]
fn idle_association_ends_and_closes_its_sockets() {
    let folder = Folder::new();
    let text = "version = 1\n[timeouts]\nidle = \"300ms\"\n[[listener]]\nbind = \"127.0.0.1:0\"\n";
    let file = folder.write("ekiden.toml", text);
    let mut relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    // The relay answers after all its threads have started, so `before` includes the descriptors of every thread.
    assert!(relay.sessions().is_empty());
    let before = relay.descriptors();
    let mut client = Client::new(relay.address());
    assert_eq!(client.tcp.read(&mut [0]).unwrap(), 0, "the relay closes the connection");
    let closed = relay.closed();
    assert_closed(&closed, "idle", 0, 0, 0);
    assert!(span_of(&closed["seconds"]) >= Duration::from_millis(300), "{closed}");
    drop(client);
    eventually("the sockets to be closed", || (relay.descriptors() <= before).then_some(()));
}

/// Associations are disabled on listeners that other hosts can reach, and impossible if every route leads through a
/// proxy of another program.
#[test]
fn refused_association_gets_a_reply_and_a_logged_reason() {
    for (arguments, detail) in [
        (vec!["-L", "auto://127.0.0.1:0?udp=false"], "UDP ASSOCIATE, and the listener has udp = false"),
        (vec!["-L", "auto://0.0.0.0:0?allow_open=true"], "UDP ASSOCIATE, and the listener has udp = false"),
        (
            vec!["-L", "auto://127.0.0.1:0", "-F", "socks5://127.0.0.1:9"],
            "UDP ASSOCIATE, and no route begins with a path of relays or with the path direct",
        ),
    ] {
        let mut relay = Relay::run(&arguments, 1);
        let at = SocketAddr::new("127.0.0.1".parse().unwrap(), relay.address().port());
        let (mut tcp, reply, _) = request_association(at, &ANY_ADDRESS);
        assert_eq!(reply, 7, "command not supported: {arguments:?}");
        assert!(is_closed(&mut tcp));
        let closed = relay.closed();
        assert_eq!((&closed["end"], &closed["detail"]), (&"bad_handshake".into(), &detail.into()), "{closed}");
    }
}

/// PySocks is the library of the Debian package python3-socks.
#[test]
fn pysocks_sends_and_receives_datagrams() {
    if programs::is_any_missing(&[PYTHON]) {
        return;
    }
    let server = udp_echo_server("127.0.0.1");
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let program = format!(
        "import socket, sys\ntry:\n import socks\nexcept ImportError:\n sys.exit(77)\n\
         s = socks.socksocket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(20)\n\
         s.set_proxy(socks.SOCKS5, '127.0.0.1', {})\ns.bind(('127.0.0.1', 0))\n\
         for host in ('127.0.0.1', 'localhost'):\n s.sendto(b'query', (host, {port}))\n\
         \u{20}assert s.recvfrom(99) == (b're:query', ('127.0.0.1', {port}))\ns.close()\n",
        relay.address().port(),
        port = server.port()
    );
    let output = Command::new(PYTHON).args(["-c", &program]).output().unwrap();
    if output.status.code() == Some(77) {
        skipped("python3-socks is not installed");
        return;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_closed(&relay.closed(), "finished", 10, 16, 0);
}
