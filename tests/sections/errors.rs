//! True errors: the client at the near end and the home relay's log report the cause that the far end of a chain found,
//! and the relay that found it.

use std::io::Write;
use std::net::SocketAddr;

use serde_json::Value;

use crate::harness::*;
use crate::relays::*;
use crate::streams::*;

/// A failure, as each party reports it.
struct Told {
    socks: u8,
    status: u16,
    proxy_status: &'static str,
    /// The home relay's log.
    end: &'static str,
}

/// Both kinds of client ask for `target`, in vain.
fn fails(chain: &mut Chain, target: &str, told: &Told, relay: usize) {
    let (host, port) = target.rsplit_once(':').unwrap();
    let port = port.parse().unwrap();
    assert_eq!(socks5_by_name(chain.home.address(), host, port).map(|_| ()), Err(told.socks), "{target}");
    blames(&chain.home.closed(), told, relay);

    for request in ["CONNECT", "GET"] {
        let mut client = chain.home.connect();
        let asked = if request == "GET" { format!("http://{target}/") } else { target.to_owned() };
        write!(client, "{request} {asked} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
        let head = read_head(&mut client);
        assert!(head.starts_with(&format!("HTTP/1.1 {} ", told.status)), "{request} {target}: {head}");
        let field = format!("\r\nProxy-Status: ekiden; error={}", told.proxy_status);
        assert!(head.contains(&field), "{request} {target}: {head}");
        drop(client);
        blames(&chain.home.closed(), told, relay);
    }
}

/// The event has the true cause and the relay that found it out.
fn blames(closed: &Value, told: &Told, relay: usize) {
    assert_eq!(closed["end"], told.end, "{closed}");
    let detail = closed["detail"].as_str().unwrap_or_else(|| panic!("who says so? {closed}"));
    assert!(detail.contains(&name(relay)), "{detail:?} is not about {}", name(relay));
}

/// Chains of one and three relays, plain and encrypted; `far` is in the last one's file.
fn each(far: &str, far_entrance: &str, check: impl Fn(&mut Chain)) {
    for (relays, encrypt) in [(1, false), (3, false), (3, true)] {
        let (far, far_entrance) = (far.to_owned(), far_entrance.to_owned());
        check(&mut Layout { relays, encrypt, far, far_entrance, ..Layout::default() }.start());
    }
}

#[test]
fn a_refused_target_is_refused() {
    each("", "", |chain| {
        let told = Told { socks: 5, status: 502, proxy_status: "connection_refused", end: "refused" };
        let last = chain.relays.len();
        fails(chain, &nobody().to_string(), &told, last);
        for relay in &mut chain.relays {
            assert_eq!(session_closed(relay)["end"], "refused");
        }
    });
}

/// Names are resolved where they are needed, by the last relay; here by a server that does not answer it.
#[test]
fn a_name_that_does_not_exist_is_not_found() {
    each("", "", |chain| {
        let told = Told { socks: 4, status: 502, proxy_status: "dns_error", end: "name_not_found" };
        let last = chain.relays.len();
        fails(chain, "nosuch.invalid:80", &told, last);
    });
}

#[test]
fn a_target_that_the_far_relay_denies_is_denied() {
    each("", "deny = [\"198.51.100.0/24\"]\n", |chain| {
        let told = Told { socks: 2, status: 403, proxy_status: "destination_ip_prohibited", end: "denied" };
        let last = chain.relays.len();
        fails(chain, "198.51.100.1:80", &told, last);
        assert_eq!(session_closed(&mut chain.relays[last - 1])["end"], "denied");
    });
}

/// A listener whose queue is full answers no more.
fn silent() -> (socket2::Socket, std::net::TcpStream, SocketAddr) {
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    (full, connect(address), address)
}

#[test]
fn a_silent_target_is_a_timeout() {
    each("[timeouts]\nconnect = \"100ms\"\n", "", |chain| {
        let (_full, _first, address) = silent();
        let told = Told { socks: 6, status: 504, proxy_status: "connection_timeout", end: "timed_out" };
        let last = chain.relays.len();
        fails(chain, &address.to_string(), &told, last);
    });
}

/// A relay that is down must not look like a target that is: neither the first nor one behind it.
#[test]
fn a_relay_that_is_down_is_no_refused_target() {
    let told = Told { socks: 1, status: 502, proxy_status: "destination_unavailable", end: "refused" };
    let mut chain = Chain::of(1);
    chain.relays.clear();
    fails(&mut chain, &parrot().to_string(), &told, 1);
    for encrypt in [false, true] {
        let mut chain = Chain::of_kind(3, encrypt);
        chain.relays.pop();
        // It is the one before it that has found out.
        fails(&mut chain, &parrot().to_string(), &told, 2);
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

/// A closed port of a relay was told as "could not connect, and did not say why", though the log said "refused".
#[test]
fn a_client_is_told_which_relay_failed_and_why() {
    let target = parrot().to_string();
    let mut chain = Chain::of(1);
    chain.relays.clear();
    let said = "The hop relay-1 refused the connection: nothing listens on its port.";
    check_answers(&chain.home, &target, 502, "destination_unavailable", said);
    for encrypt in [false, true] {
        let mut chain = Chain::of_kind(3, encrypt);
        chain.relays.pop();
        let said = "The hop behind relay-2 refused the connection: nothing listens on its port.";
        check_answers(&chain.home, &target, 502, "destination_unavailable", said);
    }
}

/// One relay behind a home relay whose `[[relay]]` table does not match the far relay.
fn mistaken(table: impl Fn(&Site, &Site) -> String, admits_home: bool) -> Chain {
    let sites = vec![Site::new(), Site::new()];
    let known = if admits_home { sites[0].key.public.clone() } else { Key::new().public };
    let peers = sites[1].admit(&[(&known, "caller")]);
    let relays = vec![sites[1].relay("", &format!("peers = {peers:?}\n"))];
    let settings = table(&sites[0], &sites[1]) + &everything_by("way", &["far".to_owned()]);
    let home = sites[0].home(&format!("[timeouts]\nconnect = \"300ms\"\n{settings}"), AUTO);
    Chain { home, relays, sites }
}

#[test]
fn a_client_is_told_what_is_wrong_with_a_relay_or_our_keys() {
    let target = parrot().to_string();
    let stranger = mistaken(|_, far| far.table("far", ""), false);
    check_answers(
        &stranger.home,
        &target,
        403,
        "http_request_denied",
        "The hop far refused: it does not know our key.",
    );
    let other = Key::new().public;
    let wrong = mistaken(|_, far| far.table("far", "").replace(&far.key.public, &other), true);
    let said = "The hop far refused: it has another key than the one configured here.";
    check_answers(&wrong.home, &target, 403, "http_request_denied", said);
    let mute = server();
    let silent = mistaken(|_, far| far.table_at(mute.1, "far", ""), true);
    check_answers(&silent.home, &target, 504, "connection_timeout", "The hop far did not answer in time.");
    let web = serve(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        let _ = std::io::Read::read(&mut stream, &mut [0; 1024]);
    });
    let no_relay = mistaken(|_, far| far.table_at(web, "far", ""), true);
    let said = "The hop far does not speak the protocol it is configured with.";
    check_answers(&no_relay.home, &target, 502, "http_protocol_error", said);
}

/// A proxy behind the last relay is a hop too: that it is down must not look like a target that is.
#[test]
fn a_proxy_behind_a_relay_is_a_hop_too() {
    for scheme in ["socks5", "http"] {
        let sites = [Site::new(), Site::new()];
        let peers = sites[1].admit(&[(&sites[0].key.public, "caller")]);
        let _far = sites[1].relay("", &format!("peers = {peers:?}\n"));
        let proxy = nobody();
        let home = sites[0].home(&format!("forward = [\"{}\", \"{scheme}://{proxy}\"]\n", sites[1].url()), AUTO);
        assert_eq!(socks5(home.address(), parrot()).map(|_| ()), Err(1), "{scheme}");
        let said = format!("The hop {scheme}://{proxy} refused the connection: nothing listens on its port.");
        check_answers(&home, &parrot().to_string(), 502, "destination_unavailable", &said);
    }
}

/// By `forward` the home relay knows the first relay only; the cause comes from far behind it all the same.
#[test]
fn causes_come_home_also_where_only_neighbours_know_each_other() {
    let mut chain = Layout { relays: 3, by: By::Forward, ..Layout::default() }.start();
    assert_eq!(socks5(chain.home.address(), nobody()).map(|_| ()), Err(5));
    let closed = chain.home.closed();
    assert_eq!(closed["end"], "refused");
    assert!(closed["detail"].is_string(), "who says so? {closed}");
    chain.relays.pop();
    assert_eq!(socks5(chain.home.address(), parrot()).map(|_| ()), Err(1));
}

/// The cause that a foreign proxy behind the last relay reports reaches the client, too.
#[test]
fn what_a_foreign_proxy_says_comes_home() {
    for scheme in ["socks5", "http"] {
        let proxy = Relay::listen(&["auto://127.0.0.1:0?deny=198.51.100.0/24"]);
        let far = format!("forward = [\"{scheme}://{}\"]\n", proxy.address());
        let chain = Layout { relays: 2, far, ..Layout::default() }.start();
        echoes(&mut socks5(chain.home.address(), parrot()).unwrap());
        assert_eq!(socks5(chain.home.address(), nobody()).map(|_| ()), Err(5), "{scheme}");
        let forbidden = "198.51.100.1:80".parse().unwrap();
        assert_eq!(socks5(chain.home.address(), forbidden).map(|_| ()), Err(2), "{scheme}");
    }
}

/// After a failure the connection it came by is of no more use, and the next session is not worse off.
#[test]
fn a_failure_costs_the_next_session_nothing() {
    let chain = Chain::of(2);
    let (target, nobody) = (parrot(), nobody());
    for _ in 0..10 {
        assert_eq!(socks5(chain.home.address(), nobody).map(|_| ()), Err(5));
        echoes(&mut socks5(chain.home.address(), target).unwrap());
    }
}
