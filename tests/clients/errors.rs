//! The cause of a failure, as each kind of client reports it.

use super::curl::{Fetched, by, closed, curl, curl_by};
use super::namespace::{Namespace, SILENT, UNREACHABLE};
use super::origin;
use super::programs::missing;
use crate::harness::{Folder, Relay, nobody};

/// The codes by which curl reports one cause.
struct Told {
    /// The HTTP status in absolute form and for CONNECT.
    status: u16,
    /// The RFC 9209 error type.
    proxy_status: &'static str,
    /// The SOCKS5 reply code, as curl prints it.
    socks5: &'static str,
}

/// Requests `target` by each proxy method with `run`, and compares the reports of curl and of the relay.
fn every_client_is_told(relay: &mut Relay, target: &str, end: &str, told: &Told, run: impl Fn(&[&str]) -> Fetched) {
    let url = format!("http://{target}/");
    let address = relay.address();
    let fetched = run(&[&by("http", address), "-i", &url]);
    fetched.ended(0, told.status);
    let expected = format!("Proxy-Status: ekiden; error={}\r\n", told.proxy_status);
    assert!(fetched.text().contains(&expected), "{}", fetched.text());
    let request = relay.next(|event| event["event"] == "request");
    assert_eq!((&request["status"], request["url"].as_str()), (&told.status.into(), Some(url.as_str())), "{request}");
    closed(relay, end, target, "direct");

    let fetched = run(&[&by("http", address), "-p", &url]);
    assert_eq!((fetched.code, fetched.transfers[0].connect_status), (56, told.status), "{}", fetched.err);
    closed(relay, end, target, "direct");

    let fetched = run(&[&by("socks5h", address), &url]);
    assert_eq!(fetched.code, 97, "{}", fetched.err);
    assert!(fetched.err.contains(told.socks5), "{} should be {}", fetched.err, told.socks5);
    closed(relay, end, target, "direct");

    // SOCKS4 has one reply code for all failures.
    let fetched = run(&[&by("socks4a", address), &url]);
    assert!(fetched.code == 97 && fetched.err.contains("(91)"), "{}", fetched.err);
    let event = closed(relay, end, target, "direct");
    assert_eq!((&event["bytes_up"], &event["bytes_down"]), (&0.into(), &0.into()), "{event}");
}

#[test]
fn a_refused_target_is_refused() {
    if missing(&["curl"]) {
        return;
    }
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let told = Told { status: 502, proxy_status: "connection_refused", socks5: "(5)" };
    for host in ["127.0.0.1", "localhost"] {
        let target = format!("{host}:{}", nobody().port());
        every_client_is_told(&mut relay, &target, "refused", &told, curl);
    }
}

#[test]
fn a_name_that_does_not_exist_is_not_found() {
    if missing(&["curl"]) {
        return;
    }
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let told = Told { status: 502, proxy_status: "dns_error", socks5: "(4)" };
    every_client_is_told(&mut relay, "nosuch.invalid:8080", "name_not_found", &told, curl);
}

#[test]
fn a_forbidden_target_is_denied() {
    if missing(&["curl"]) {
        return;
    }
    let port = nobody().port();
    let denied = Told { status: 403, proxy_status: "destination_ip_prohibited", socks5: "(2)" };
    let not_found = Told { status: 502, proxy_status: "dns_error", socks5: "(4)" };
    // Where private addresses are denied, only the log says that a name resolves to one.
    let rules = [
        (format!("deny=127.0.0.0/8:{port}&deny=[::1]:{port}"), &denied),
        ("allow=*.example.com".to_owned(), &denied),
        ("allow_private=false".to_owned(), &not_found),
    ];
    for (rule, told_of_name) in rules {
        let mut relay = Relay::listen(&[&format!("auto://127.0.0.1:0?{rule}")]);
        // The name resolves to this address as well.
        for (host, told) in [("127.0.0.1", &denied), ("localhost", told_of_name)] {
            let target = format!("{host}:{port}");
            every_client_is_told(&mut relay, &target, "denied", told, curl);
        }
    }
}

#[test]
fn a_silent_target_times_out_and_an_unreachable_one_does_not() {
    if missing(&["curl"]) {
        return;
    }
    let Some(namespace) = Namespace::new() else { return };
    let folder = Folder::new();
    let text = "version = 1\n[timeouts]\nconnect = \"400ms\"\n[[listener]]\nbind = \"127.0.0.1:0\"\nkind = \"auto\"\n";
    let path = folder.write("ekiden.toml", text);
    let mut command = namespace.command(env!("CARGO_BIN_EXE_ekiden"));
    let mut relay = Relay::start(command.args(["run", "-c"]).arg(path), 1);
    let run = |arguments: &[&str]| curl_by(&mut namespace.command("curl"), arguments);
    let told = Told { status: 504, proxy_status: "connection_timeout", socks5: "(6)" };
    every_client_is_told(&mut relay, &format!("{SILENT}:8080"), "timed_out", &told, run);
    let told = Told { status: 502, proxy_status: "destination_ip_unroutable", socks5: "(4)" };
    every_client_is_told(&mut relay, &format!("{UNREACHABLE}:8080"), "unreachable", &told, run);
}

#[test]
fn name_servers_that_fail_are_not_a_name_that_is_missing() {
    if missing(&["curl"]) {
        return;
    }
    let folder = Folder::new();
    // No name server listens at this address.
    let servers = nobody();
    let text = format!(
        "version = 1\n[timeouts]\nconnect = \"1s\"\n[dns]\nservers = [\"{servers}\"]\n[[listener]]\nbind = \"127.0.0.1:0\"\nkind = \"auto\"\n"
    );
    let path = folder.write("ekiden.toml", text);
    let mut relay = Relay::run(&["-c", path.to_str().expect("a path in ASCII")], 1);
    curl(&[&by("http", relay.address()), "http://www.example.com:8080/"]).ended(0, 502);
    closed(&mut relay, "name_server_failed", "www.example.com:8080", "direct");
}

/// Without a hop no error may be attributed to a hop.
#[test]
fn a_server_that_answers_nonsense_is_not_a_hop() {
    if missing(&["curl"]) {
        return;
    }
    let origin = origin::start();
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    for path in ["no-http", "wants-proxy-password"] {
        let fetched = curl(&[&by("http", relay.address()), &format!("http://{origin}/{path}")]);
        assert_eq!(fetched.code, 0, "{}", fetched.err);
        assert!(!fetched.text().contains("next relay"), "{path}: {}", fetched.text());
        let event = relay.closed();
        assert!(!event["end"].as_str().unwrap_or("hop").contains("hop"), "{path}: {event}");
    }
}
