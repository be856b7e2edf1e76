//! The cause of a failure, as each kind of client reports it.

use super::curl::{Fetched, assert_next_closed, curl, curl_with, proxy_option};
use super::namespace::{Namespace, SILENT, UNREACHABLE};
use super::origin;
use super::programs::is_any_missing;
use crate::harness::{Folder, Relay, unused_address};

/// The codes with which curl reports one cause of a failure.
struct Codes {
    /// The HTTP status in absolute form and for CONNECT.
    status: u16,
    /// The RFC 9209 error type.
    proxy_status: &'static str,
    /// The SOCKS5 reply code, as curl prints it.
    socks5: &'static str,
}

/// Requests `target` by each proxy method with `run`, and asserts the reports of curl and of the relay.
fn check_every_client(relay: &mut Relay, target: &str, end: &str, codes: &Codes, run: impl Fn(&[&str]) -> Fetched) {
    let url = format!("http://{target}/");
    let address = relay.address();
    let fetched = run(&[&proxy_option("http", address), "-i", &url]);
    fetched.assert_ended(0, codes.status);
    let expected = format!("Proxy-Status: ekiden; error={}\r\n", codes.proxy_status);
    assert!(fetched.text().contains(&expected), "{}", fetched.text());
    let request = relay.next(|event| event["event"] == "request");
    assert_eq!((&request["status"], request["url"].as_str()), (&codes.status.into(), Some(url.as_str())), "{request}");
    assert_next_closed(relay, end, target, "direct");

    let fetched = run(&[&proxy_option("http", address), "-p", &url]);
    assert_eq!((fetched.code, fetched.transfers[0].connect_status), (56, codes.status), "{}", fetched.err);
    assert_next_closed(relay, end, target, "direct");

    let fetched = run(&[&proxy_option("socks5h", address), &url]);
    assert_eq!(fetched.code, 97, "{}", fetched.err);
    assert!(fetched.err.contains(codes.socks5), "{} should be {}", fetched.err, codes.socks5);
    assert_next_closed(relay, end, target, "direct");

    // SOCKS4 has one reply code for all failures.
    let fetched = run(&[&proxy_option("socks4a", address), &url]);
    assert!(fetched.code == 97 && fetched.err.contains("(91)"), "{}", fetched.err);
    let event = assert_next_closed(relay, end, target, "direct");
    assert_eq!((&event["bytes_up"], &event["bytes_down"]), (&0.into(), &0.into()), "{event}");
}

#[test]
fn refused_connection_is_reported_as_refused() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let codes = Codes { status: 502, proxy_status: "connection_refused", socks5: "(5)" };
    for host in ["127.0.0.1", "localhost"] {
        let target = format!("{host}:{}", unused_address().port());
        check_every_client(&mut relay, &target, "refused", &codes, curl);
    }
}

#[test]
fn nonexistent_name_is_reported_as_not_found() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let codes = Codes { status: 502, proxy_status: "dns_error", socks5: "(4)" };
    check_every_client(&mut relay, "nosuch.invalid:8080", "name_not_found", &codes, curl);
}

#[test]
fn forbidden_target_is_reported_as_denied() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let port = unused_address().port();
    let denied = Codes { status: 403, proxy_status: "destination_ip_prohibited", socks5: "(2)" };
    let not_found = Codes { status: 502, proxy_status: "dns_error", socks5: "(4)" };
    // With `allow_private=false` the client gets the error of a nonexistent name; only the log reports that the name
    // resolves to a private address.
    let rules = [
        (format!("deny=127.0.0.0/8:{port}&deny=[::1]:{port}"), &denied),
        ("allow=*.example.com".to_owned(), &denied),
        ("allow_private=false".to_owned(), &not_found),
    ];
    for (rule, codes_of_name) in rules {
        let mut relay = Relay::listen(&[&format!("auto://127.0.0.1:0?{rule}")]);
        // The name localhost resolves to 127.0.0.1, so each rule applies to the name, too.
        for (host, codes) in [("127.0.0.1", &denied), ("localhost", codes_of_name)] {
            let target = format!("{host}:{port}");
            check_every_client(&mut relay, &target, "denied", codes, curl);
        }
    }
}

#[test]
fn silent_target_times_out_and_missing_route_is_unreachable() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let Some(namespace) = Namespace::new() else { return };
    let folder = Folder::new();
    let text = "version = 1\n[timeouts]\nconnect = \"400ms\"\n[[listener]]\nbind = \"127.0.0.1:0\"\nkind = \"auto\"\n";
    let path = folder.write("ekiden.toml", text);
    let mut command = namespace.command(env!("CARGO_BIN_EXE_ekiden"));
    let mut relay = Relay::start(command.args(["run", "-c"]).arg(path), 1);
    let run = |arguments: &[&str]| curl_with(&mut namespace.command("curl"), arguments);
    let codes = Codes { status: 504, proxy_status: "connection_timeout", socks5: "(6)" };
    check_every_client(&mut relay, &format!("{SILENT}:8080"), "timed_out", &codes, run);
    let codes = Codes { status: 502, proxy_status: "destination_ip_unroutable", socks5: "(4)" };
    check_every_client(&mut relay, &format!("{UNREACHABLE}:8080"), "unreachable", &codes, run);
}

#[test]
fn name_server_failure_is_distinguished_from_a_missing_name() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let folder = Folder::new();
    // No name server listens at this address.
    let servers = unused_address();
    let text = format!(
        "version = 1\n[timeouts]\nconnect = \"1s\"\n[dns]\nservers = [\"{servers}\"]\n[[listener]]\nbind = \"127.0.0.1:0\"\nkind = \"auto\"\n"
    );
    let path = folder.write("ekiden.toml", text);
    let mut relay = Relay::run(&["-c", path.to_str().expect("a path in ASCII")], 1);
    curl(&[&proxy_option("http", relay.address()), "http://www.example.com:8080/"]).assert_ended(0, 502);
    assert_next_closed(&mut relay, "name_server_failed", "www.example.com:8080", "direct");
}

/// The path is direct, so no error may be attributed to a hop.
#[test]
fn invalid_server_responses_are_not_attributed_to_a_hop() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let origin = origin::start();
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    for path in ["no-http", "wants-proxy-password"] {
        let fetched = curl(&[&proxy_option("http", relay.address()), &format!("http://{origin}/{path}")]);
        assert_eq!(fetched.code, 0, "{}", fetched.err);
        assert!(!fetched.text().contains("next relay"), "{path}: {}", fetched.text());
        let event = relay.closed();
        assert!(!event["end"].as_str().unwrap_or("hop").contains("hop"), "{path}: {event}");
    }
}
