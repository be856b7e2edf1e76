//! curl through SOCKS4, 4a and 5, with names resolved by curl or by the relay.

use super::curl::{assert_next_closed, curl, proxy_option};
use super::programs::is_any_missing;
use super::servers::Nginx;
use crate::harness::{Relay, pattern};

#[test]
fn every_socks_version_delivers_the_same_bytes() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let (small, large) = (pattern(1234), pattern(20_000_000));
    let nginx = Nginx::start().with_file("small", &small).with_file("large", &large);
    let port = nginx.address.port();
    for listener in ["auto", "socks"] {
        let mut relay = Relay::listen(&[&format!("{listener}://127.0.0.1:0")]);
        // Where curl resolves the name, the relay receives an address.
        for (scheme, host, target) in [
            ("socks4", "127.0.0.1", "127.0.0.1"),
            ("socks4a", "localhost", "localhost"),
            ("socks4a", "127.0.0.1", "127.0.0.1"),
            ("socks5", "127.0.0.1", "127.0.0.1"),
            ("socks5h", "localhost", "localhost"),
            ("socks5h", "a.b.localhost", "a.b.localhost"),
        ] {
            for (name, expected) in [("small", &small), ("large", &large)] {
                let fetched = curl(&[&proxy_option(scheme, relay.address()), &format!("http://{host}:{port}/{name}")]);
                fetched.assert_success(200, expected);
                let closed = assert_next_closed(&mut relay, "finished", &format!("{target}:{port}"), "direct");
                assert_eq!(closed["bytes_down"], fetched.transfers[0].bytes_down, "{scheme}: {closed}");
                assert_eq!(closed["server"], nginx.address.to_string(), "{closed}");
                let spliced = closed["bytes_spliced"].as_u64().unwrap_or(0);
                assert_eq!(spliced > 1_000_000, name == "large", "{scheme}: {closed}");
            }
        }
    }
}

#[test]
fn https_passes_through_socks_end_to_end() {
    if is_any_missing(&["curl", "nginx", "openssl"]) {
        return;
    }
    let bytes = pattern(3_000_000);
    let nginx = Nginx::with_tls().with_file("file", &bytes);
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    for scheme in ["socks4a", "socks5h"] {
        let proxy = proxy_option(scheme, relay.address());
        curl(&[&proxy, "--cacert", &nginx.certificate(), &nginx.secure_url("file")]).assert_success(200, &bytes);
        let port = nginx.secure.expect("with TLS").port();
        let closed = assert_next_closed(&mut relay, "finished", &format!("localhost:{port}"), "direct");
        assert!(closed["bytes_down"].as_u64() > Some(3_000_000), "{closed}");
    }
}

#[test]
fn socks_listener_rejects_http() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let mut relay = Relay::listen(&["socks://127.0.0.1:0"]);
    let fetched = curl(&[&proxy_option("http", relay.address()), "http://127.0.0.1:9/"]);
    assert_ne!(fetched.code, 0);
    assert_eq!(relay.closed()["end"], "bad_handshake");
}
