//! Paths with other proxies as hops: dante and squid, alone and in both orders.

use std::process::Command;

use super::curl::{assert_next_closed, curl, curl_with, proxy_option};
use super::namespace::{Namespace, SILENT};
use super::programs::is_any_missing;
use super::servers::{Dante, Nginx, Squid};
use super::users::relay_with_users;
use crate::harness::{Folder, Relay, ekiden, pattern, server, unused_address};

/// Starts a relay that dials through these hops.
pub fn relay_through(hops: &[&str]) -> Relay {
    let forward = hops.iter().flat_map(|hop| ["-F", hop]);
    let arguments: Vec<&str> = ["-L", "auto://127.0.0.1:0"].into_iter().chain(forward).collect();
    Relay::run(&arguments, 1)
}

/// Fetches two files through these hops with each kind of client, and asserts the bytes and the path in the events.
fn fetch_with_every_client(hops: &[&str]) {
    let (small, large) = (pattern(100), pattern(6_000_000));
    let nginx = Nginx::with_tls().with_file("small", &small).with_file("large", &large);
    let mut relay = relay_through(hops);
    let path = hops.join(",");
    let certificate = nginx.certificate();
    for (name, bytes) in [("small", &small), ("large", &large)] {
        let (plain, secure) = (nginx.named_url(name), nginx.secure_url(name));
        for (scheme, tunnel, url) in [
            ("socks4a", "-S", &plain),
            ("socks5h", "-S", &plain),
            ("socks5h", "-S", &secure),
            ("http", "-S", &plain),
            ("http", "-p", &plain),
            ("http", "-S", &secure),
        ] {
            let fetched = curl(&[&proxy_option(scheme, relay.address()), tunnel, "--cacert", &certificate, url]);
            fetched.assert_success(200, bytes);
            let target = url.split('/').nth(2).expect("a URL");
            let event = assert_next_closed(&mut relay, "finished", target, &path);
            let first_hop = hops[0].split("://").nth(1);
            assert_eq!(event["server"].as_str(), first_hop, "{event}");
            assert!(event["bytes_down"].as_u64() > Some(bytes.len() as u64), "{event}");
        }
    }
    // Two files by six clients. Only the requests in absolute form, one for each file, have the relay in `Via`.
    assert_eq!(nginx.wait_requests(12).iter().filter(|line| line.contains("ekiden")).count(), 2);
}

#[test]
fn every_client_fetches_through_dante() {
    if is_any_missing(&["curl", "nginx", "openssl", "danted"]) {
        return;
    }
    let dante = Dante::start();
    fetch_with_every_client(&[&dante.hop()]);
    dante.wait_logged("pass(1): tcp/connect");
}

#[test]
fn every_client_fetches_through_squid() {
    if is_any_missing(&["curl", "nginx", "openssl", "squid"]) {
        return;
    }
    let squid = Squid::start();
    fetch_with_every_client(&[&squid.hop()]);
    squid.wait_logged("/large");
    squid.wait_logged("CONNECT localhost:");
}

#[test]
fn every_client_fetches_through_dante_then_squid() {
    if is_any_missing(&["curl", "nginx", "openssl", "danted", "squid"]) {
        return;
    }
    let (dante, squid) = (Dante::start(), Squid::start());
    fetch_with_every_client(&[&dante.hop(), &squid.hop()]);
    dante.wait_logged(&format!("127.0.0.1.{}", squid.address.port()));
    squid.wait_logged("CONNECT localhost:");
}

#[test]
fn every_client_fetches_through_squid_then_dante() {
    if is_any_missing(&["curl", "nginx", "openssl", "danted", "squid"]) {
        return;
    }
    let (dante, squid) = (Dante::start(), Squid::start());
    fetch_with_every_client(&[&squid.hop(), &dante.hop()]);
    squid.wait_logged(&format!("CONNECT {}", dante.address));
    dante.wait_logged("pass(1): tcp/connect");
}

/// After a request in absolute form the relay keeps its connection to squid open, for requests to any server.
#[test]
fn connection_to_an_http_hop_is_reused() {
    if is_any_missing(&["curl", "nginx", "squid"]) {
        return;
    }
    let bytes = pattern(40_000);
    let servers = [Nginx::start().with_file("file", &bytes), Nginx::start().with_file("file", &bytes)];
    let squid = Squid::start();
    let mut relay = relay_through(&[&squid.hop()]);
    let urls = [servers[0].url("file"), servers[1].url("file")];
    curl(&[&proxy_option("http", relay.address()), &urls[0], &urls[1]]).assert_success(200, &bytes.repeat(2));
    for reused in [false, true] {
        assert_eq!(relay.next(|event| event["event"] == "request")["reused"], reused, "the target does not matter");
    }
    assert_next_closed(&mut relay, "finished", &servers[1].address.to_string(), &squid.hop());
}

#[test]
fn target_blocked_by_dante_is_reported_as_denied_by_hop() {
    if is_any_missing(&["curl", "danted"]) {
        return;
    }
    let dante = Dante::with_authentication("none", "block");
    let target = unused_address().to_string();
    let mut relay = relay_through(&[&dante.hop()]);
    curl(&[&proxy_option("http", relay.address()), &format!("http://{target}/")]).assert_ended(0, 403);
    assert_next_closed(&mut relay, "denied_by_hop", &target, &dante.hop());
}

/// The reverse order: ekiden is the next proxy of squid (HTTP) and of dante (SOCKS5).
#[test]
fn squid_and_dante_forward_through_ekiden() {
    if is_any_missing(&["curl", "nginx", "openssl", "danted", "squid"]) {
        return;
    }
    let bytes = pattern(3_000_000);
    let nginx = Nginx::with_tls().with_file("file", &bytes);
    let (plain, secure) = (nginx.named_url("file"), nginx.secure_url("file"));
    let targets =
        [nginx.address, nginx.secure.expect("with TLS")].map(|address| format!("localhost:{}", address.port()));
    let certificate = nginx.certificate();

    let folder = Folder::new();
    let mut relay = relay_with_users(&folder);
    let squid = Squid::forwarding_to(relay.address(), "ann:correct%20horse");
    // The client's address is the same as the parent's, so the text includes the field for the next server.
    let parent = format!("- FIRSTUP_PARENT/{}", relay.address().ip());
    for (url, target) in [&plain, &secure].into_iter().zip(&targets) {
        curl(&[&proxy_option("http", squid.address), "--cacert", &certificate, url]).assert_success(200, &bytes);
        if url == &secure {
            squid.wait_logged(&format!("CONNECT {target} {parent}"));
            // Sessions without this user are squid's probes of its parent.
            let event = relay.next(|event| event["event"] == "closed" && event["user"] == "ann");
            assert_eq!((event["end"].as_str(), event["target"].as_str()), (Some("finished"), Some(target.as_str())));
        } else {
            squid.wait_logged(&format!("GET {url} {parent}"));
            // squid keeps its connection to the relay for the next request.
            let request = relay.next(|event| event["event"] == "request");
            assert_eq!((request["status"].as_u64(), request["url"].as_str()), (Some(200), Some(url.as_str())));
        }
    }
    assert!(nginx.wait_requests(1)[0].ends_with(", 1.1 ekiden\""), "{:?}", nginx.wait_requests(1));

    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let dante = Dante::forwarding_to(relay.address());
    for (url, target) in [&plain, &secure].into_iter().zip(&targets) {
        curl(&[&proxy_option("socks5h", dante.address), "--cacert", &certificate, url]).assert_success(200, &bytes);
        // dante resolves names itself.
        assert_next_closed(&mut relay, "finished", &target.replace("localhost", "127.0.0.1"), "direct");
    }
}

#[test]
fn refusal_by_a_hop_is_not_attributed_to_the_target() {
    if is_any_missing(&["curl"]) {
        return;
    }
    for kind in ["socks5", "http"] {
        let hop = format!("{kind}://{}", unused_address());
        let mut relay = relay_through(&[&hop]);
        let target = unused_address().to_string();
        let url = format!("http://{target}/");
        let fetched = curl(&[&proxy_option("http", relay.address()), &url]);
        fetched.assert_ended(0, 502);
        let sentence = format!("The hop {hop} refused the connection: nothing listens on its port.");
        assert!(fetched.text().contains(&sentence), "{}", fetched.text());
        let event = assert_next_closed(&mut relay, "refused", &target, &hop);
        assert_eq!(event["detail"], format!("hop {hop}"), "{event}");
        let fetched = curl(&[&proxy_option("socks5h", relay.address()), &url]);
        // 1 is a general failure; 5 would mean that the target refused the connection.
        assert!(fetched.code == 97 && fetched.err.contains("(1)"), "{}", fetched.err);
        assert_next_closed(&mut relay, "refused", &target, &hop);
    }
}

/// Two kinds of silent hops: one does not answer the SYN, and one accepts the connection and sends nothing.
#[test]
fn timeout_event_names_the_silent_hop() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let Some(namespace) = Namespace::new() else { return };
    let folder = Folder::new();
    let (_tarpit, silent) = server();
    for (kind, address) in [("socks5", format!("{SILENT}:1080")), ("socks5", silent.to_string())] {
        let hop = format!("{kind}://{address}");
        let text = format!(
            "version = 1\nforward = [\"{hop}\"]\n[timeouts]\nconnect = \"300ms\"\n\
             [[listener]]\nbind = \"127.0.0.1:0\"\nkind = \"auto\"\n"
        );
        let path = folder.write("ekiden.toml", text);
        let outside = address == silent.to_string();
        let mut command = if outside { ekiden() } else { namespace.command(env!("CARGO_BIN_EXE_ekiden")) };
        let mut relay = Relay::start(command.args(["run", "-c"]).arg(path), 1);
        let mut client = if outside { Command::new("curl") } else { namespace.command("curl") };
        curl_with(&mut client, &[&proxy_option("http", relay.address()), "http://192.0.2.77:8080/"])
            .assert_ended(0, 504);
        let event = assert_next_closed(&mut relay, "timed_out", "192.0.2.77:8080", &hop);
        assert_eq!(event["detail"], format!("hop {hop}"), "{event}");
    }
}

#[test]
fn target_failure_reported_by_a_hop_reaches_the_client() {
    if is_any_missing(&["curl", "danted", "squid"]) {
        return;
    }
    let (dante, squid) = (Dante::start(), Squid::start());
    let target = unused_address().to_string();
    let url = format!("http://{target}/");
    for hops in [vec![dante.hop()], vec![squid.hop()], vec![dante.hop(), squid.hop()], vec![squid.hop(), dante.hop()]] {
        let mut relay = relay_through(&hops.iter().map(String::as_str).collect::<Vec<_>>());
        let path = hops.join(",");
        let fetched = curl(&[&proxy_option("socks5h", relay.address()), &url]);
        assert!(fetched.code == 97 && fetched.err.contains("(5)"), "{path}: {}", fetched.err);
        let event = assert_next_closed(&mut relay, "refused", &target, &path);
        assert!(event["detail"].is_null(), "the detail names no hop: {event}");
        let fetched = curl(&[&proxy_option("http", relay.address()), "-p", &url]);
        assert_eq!((fetched.code, fetched.transfers[0].connect_status), (56, 502), "{path}: {}", fetched.err);
        assert_next_closed(&mut relay, "refused", &target, &path);
    }
}
