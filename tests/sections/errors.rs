//! Errors across a chain: the answer to the client and the home relay's log state the cause of a failure and the relay
//! that detected it.

use std::io::Write;
use std::net::SocketAddr;

use serde_json::Value;

use crate::harness::*;
use crate::relays::*;
use crate::streams::*;

/// A failure, as it is reported to each kind of client and in the log.
struct Failure {
    socks: u8,
    status: u16,
    proxy_status: &'static str,
    /// `end` of the closing event in the home relay's log.
    end: &'static str,
}

/// Checks that SOCKS5 and HTTP requests for `target` fail with `failure`, and that the log names `relay`.
fn check_failure(chain: &mut Chain, target: &str, failure: &Failure, relay: usize) {
    let (host, port) = target.rsplit_once(':').unwrap();
    let port = port.parse().unwrap();
    assert_eq!(socks5_by_name(chain.home.address(), host, port).map(|_| ()), Err(failure.socks), "{target}");
    check_cause(&chain.home.closed(), failure, relay);

    for request in ["CONNECT", "GET"] {
        let mut client = chain.home.connect();
        let asked = if request == "GET" { format!("http://{target}/") } else { target.to_owned() };
        write!(client, "{request} {asked} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
        let head = read_head(&mut client);
        assert!(head.starts_with(&format!("HTTP/1.1 {} ", failure.status)), "{request} {target}: {head}");
        let field = format!("\r\nProxy-Status: ekiden; error={}", failure.proxy_status);
        assert!(head.contains(&field), "{request} {target}: {head}");
        drop(client);
        check_cause(&chain.home.closed(), failure, relay);
    }
}

/// Checks that the closing event has the cause and names the relay that has detected the failure.
fn check_cause(closed: &Value, failure: &Failure, relay: usize) {
    assert_eq!(closed["end"], failure.end, "{closed}");
    let detail = closed["detail"].as_str().unwrap_or_else(|| panic!("no detail: {closed}"));
    assert!(detail.contains(&relay_name(relay)), "{detail:?} does not name {}", relay_name(relay));
}

/// Runs `check` on a plain chain of one relay, and on plain and encrypted chains of three relays. `far` is part of the
/// last relay's configuration.
fn for_each_chain(far: &str, far_listener_keys: &str, check: impl Fn(&mut Chain)) {
    for (relays, encrypt) in [(1, false), (3, false), (3, true)] {
        let (far, far_listener_keys) = (far.to_owned(), far_listener_keys.to_owned());
        check(&mut Layout { relays, encrypt, far, far_listener_keys, ..Layout::default() }.start());
    }
}

#[test]
fn refused_target_is_reported_as_refused() {
    for_each_chain("", "", |chain| {
        let failure = Failure { socks: 5, status: 502, proxy_status: "connection_refused", end: "refused" };
        let last = chain.relays.len();
        check_failure(chain, &unused_address().to_string(), &failure, last);
        for relay in &mut chain.relays {
            assert_eq!(session_closed(relay)["end"], "refused");
        }
    });
}

/// The last relay of the chain resolves the name.
#[test]
fn nonexistent_name_is_reported_as_not_found() {
    for_each_chain("", "", |chain| {
        let failure = Failure { socks: 4, status: 502, proxy_status: "dns_error", end: "name_not_found" };
        let last = chain.relays.len();
        check_failure(chain, "nosuch.invalid:80", &failure, last);
    });
}

#[test]
fn denial_by_the_far_relay_is_reported() {
    for_each_chain("", "deny = [\"198.51.100.0/24\"]\n", |chain| {
        let failure = Failure { socks: 2, status: 403, proxy_status: "destination_ip_prohibited", end: "denied" };
        let last = chain.relays.len();
        check_failure(chain, "198.51.100.1:80", &failure, last);
        assert_eq!(session_closed(&mut chain.relays[last - 1])["end"], "denied");
    });
}

/// A listener with a full accept queue, so that the kernel drops further SYNs. Returns the listener, the connection
/// that fills the queue, and the address.
fn silent_listener() -> (socket2::Socket, std::net::TcpStream, SocketAddr) {
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    (full, connect(address), address)
}

#[test]
fn silent_target_is_reported_as_timeout() {
    for_each_chain("[timeouts]\nconnect = \"100ms\"\n", "", |chain| {
        let (_full, _first, address) = silent_listener();
        let failure = Failure { socks: 6, status: 504, proxy_status: "connection_timeout", end: "timed_out" };
        let last = chain.relays.len();
        check_failure(chain, &address.to_string(), &failure, last);
    });
}

/// A relay that is down, the first of a chain or a later one, is not reported as a target that is down.
#[test]
fn unreachable_relay_is_distinguished_from_refused_target() {
    let failure = Failure { socks: 1, status: 502, proxy_status: "destination_unavailable", end: "refused" };
    let mut chain = Chain::start(1);
    chain.relays.clear();
    check_failure(&mut chain, &echo_server().to_string(), &failure, 1);
    for encrypt in [false, true] {
        let mut chain = Chain::start_with(3, encrypt);
        chain.relays.pop();
        // The relay before it detects the failure.
        check_failure(&mut chain, &echo_server().to_string(), &failure, 2);
    }
}

/// Checks the answers to a CONNECT and a GET: the status, and the same sentence in `Proxy-Status` and on the page.
pub fn check_answers(home: &Relay, target: &str, status: u16, error: &str, sentence: &str) {
    for request in ["CONNECT", "GET"] {
        let mut client = connect(home.address());
        let asked = if request == "GET" { format!("http://{target}/") } else { target.to_owned() };
        write!(client, "{request} {asked} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
        let answer = String::from_utf8(read_all(&mut client)).unwrap();
        let (head, page) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {head}");
        let field = format!("\r\nProxy-Status: ekiden; error={error}; details=\"{sentence}\"\r\n");
        assert!(format!("{head}\r\n").contains(&field), "{request}: {head}");
        assert_eq!(page, format!("{sentence}\n"), "{request}");
    }
}

/// Regression: a closed port of a relay was reported as "could not connect, and did not say why", although the log had
/// "refused".
#[test]
fn http_error_names_the_failed_relay_and_the_cause() {
    let target = echo_server().to_string();
    let mut chain = Chain::start(1);
    chain.relays.clear();
    let sentence = "The hop relay-1 refused the connection: nothing listens on its port.";
    check_answers(&chain.home, &target, 502, "destination_unavailable", sentence);
    for encrypt in [false, true] {
        let mut chain = Chain::start_with(3, encrypt);
        chain.relays.pop();
        let sentence = "The hop behind relay-2 refused the connection: nothing listens on its port.";
        check_answers(&chain.home, &target, 502, "destination_unavailable", sentence);
    }
}

/// A home relay with the `[[relay]]` table that `table` returns, and a far relay whose peers file lists the key of the
/// home relay only if `admits_home`.
fn misconfigured(table: impl Fn(&Site, &Site) -> String, admits_home: bool) -> Chain {
    let sites = vec![Site::new(), Site::new()];
    let known = if admits_home { sites[0].key.public.clone() } else { Key::new().public };
    let peers = sites[1].admit(&[(&known, "caller")]);
    let relays = vec![sites[1].relay("", &format!("peers = {peers:?}\n"))];
    let settings = table(&sites[0], &sites[1]) + &route_all_through("way", &["far".to_owned()]);
    let home = sites[0].home(&format!("[timeouts]\nconnect = \"300ms\"\n{settings}"), AUTO);
    Chain { home, relays, sites }
}

#[test]
fn http_error_names_key_mismatch_timeout_and_wrong_protocol() {
    let target = echo_server().to_string();
    let stranger = misconfigured(|_, far| far.table("far", ""), false);
    check_answers(
        &stranger.home,
        &target,
        403,
        "http_request_denied",
        "The hop far refused: it does not list the key of this relay among its peers.",
    );
    let other = Key::new().public;
    let wrong = misconfigured(|_, far| far.table("far", "").replace(&far.key.public, &other), true);
    let sentence = "The hop far refused: its key is not the configured key.";
    check_answers(&wrong.home, &target, 403, "http_request_denied", sentence);
    let mute = server();
    let silent = misconfigured(|_, far| far.table_at(mute.1, "far", ""), true);
    check_answers(&silent.home, &target, 504, "connection_timeout", "The hop far did not answer in time.");
    let web = serve(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        let _ = std::io::Read::read(&mut stream, &mut [0; 1024]);
    });
    let no_relay = misconfigured(|_, far| far.table_at(web, "far", ""), true);
    let sentence = "The hop far does not speak the configured protocol.";
    check_answers(&no_relay.home, &target, 502, "http_protocol_error", sentence);
}

/// A proxy behind the last relay is a hop, so its failure is not reported as a failure of the target.
#[test]
fn unreachable_proxy_behind_a_relay_is_reported_as_failed_hop() {
    for scheme in ["socks5", "http"] {
        let sites = [Site::new(), Site::new()];
        let peers = sites[1].admit(&[(&sites[0].key.public, "caller")]);
        let _far = sites[1].relay("", &format!("peers = {peers:?}\n"));
        let proxy = unused_address();
        let home = sites[0].home(&format!("forward = [\"{}\", \"{scheme}://{proxy}\"]\n", sites[1].url()), AUTO);
        assert_eq!(socks5(home.address(), echo_server()).map(|_| ()), Err(1), "{scheme}");
        let sentence = format!("The hop {scheme}://{proxy} refused the connection: nothing listens on its port.");
        check_answers(&home, &echo_server().to_string(), 502, "destination_unavailable", &sentence);
    }
}

/// With `forward` the home relay is configured with the first relay only; causes from later relays still reach the
/// client.
#[test]
fn causes_cross_chains_configured_by_forward() {
    let mut chain = Layout { relays: 3, routing: Routing::Forward, ..Layout::default() }.start();
    assert_eq!(socks5(chain.home.address(), unused_address()).map(|_| ()), Err(5));
    let closed = chain.home.closed();
    assert_eq!(closed["end"], "refused");
    assert!(closed["detail"].is_string(), "no detail: {closed}");
    chain.relays.pop();
    assert_eq!(socks5(chain.home.address(), echo_server()).map(|_| ()), Err(1));
}

/// The foreign proxy is behind the last relay.
#[test]
fn causes_from_a_foreign_proxy_reach_the_client() {
    for scheme in ["socks5", "http"] {
        let proxy = Relay::listen(&["auto://127.0.0.1:0?deny=198.51.100.0/24"]);
        let far = format!("forward = [\"{scheme}://{}\"]\n", proxy.address());
        let chain = Layout { relays: 2, far, ..Layout::default() }.start();
        assert_echo(&mut socks5(chain.home.address(), echo_server()).unwrap());
        assert_eq!(socks5(chain.home.address(), unused_address()).map(|_| ()), Err(5), "{scheme}");
        let forbidden = "198.51.100.1:80".parse().unwrap();
        assert_eq!(socks5(chain.home.address(), forbidden).map(|_| ()), Err(2), "{scheme}");
    }
}

/// A failed session consumes its connection to the next relay; the next session succeeds on another connection.
#[test]
fn sessions_succeed_after_a_failed_session() {
    let chain = Chain::start(2);
    let (target, unused) = (echo_server(), unused_address());
    let reused = || metric_sum(&chain.home, "ekiden_ready_connections_total", "result=\"reused\"");
    for round in 0..10 {
        // Each failed session takes the connection that the session before has returned.
        assert_eq!(socks5(chain.home.address(), unused).map(|_| ()), Err(5));
        assert_eq!(reused(), round);
        assert_echo(&mut socks5(chain.home.address(), target).unwrap());
        assert_eq!(reused(), round, "the session uses the connection of the failed session");
        let has_returned = || metric_sum(&chain.home, "ekiden_ready_used{", "") == 1;
        eventually("the returned connection", || has_returned().then_some(()));
    }
}
