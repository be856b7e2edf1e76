//! User names and passwords that curl sends: right, wrong and missing.

use super::curl::{assert_closed, assert_next_closed, curl, proxy_option};
use super::programs::is_any_missing;
use super::servers::Nginx;
use crate::harness::{Folder, HTPASSWD, Relay, pattern};

/// Starts a relay whose listener requires a user of [`HTPASSWD`].
pub fn relay_with_users(folder: &Folder) -> Relay {
    let users = folder.write("users", HTPASSWD);
    Relay::listen(&[&format!("auto://127.0.0.1:0?users={}", users.display())])
}

#[test]
fn right_password_is_accepted_by_every_proxy_method() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let bytes = pattern(200_000);
    let nginx = Nginx::start().with_file("file", &bytes);
    let folder = Folder::new();
    let mut relay = relay_with_users(&folder);
    for (scheme, more) in [("http", "-S"), ("http", "-p"), ("http", "--proxy-basic"), ("socks5h", "-S")] {
        let proxy = proxy_option(scheme, relay.address());
        curl(&[&proxy, more, "-U", "ann:correct horse", &nginx.url("file")]).assert_success(200, &bytes);
        let event = assert_next_closed(&mut relay, "finished", &nginx.address.to_string(), "direct");
        assert_eq!(event["user"], "ann", "{event}");
    }
    assert!(nginx.wait_requests(4).len() == 4);
}

/// `--proxy-anyauth` sends a request without a password first, and repeats it with the scheme that the relay demands.
#[test]
fn proxy_anyauth_retries_with_the_demanded_scheme() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let bytes = pattern(200_000);
    let nginx = Nginx::start().with_file("file", &bytes);
    let folder = Folder::new();
    let mut relay = relay_with_users(&folder);
    for tunnel in ["-S", "-p"] {
        let proxy = proxy_option("http", relay.address());
        let arguments = [&proxy, tunnel, "--proxy-anyauth", "-U", "ann:correct horse", &nginx.url("file")];
        curl(&arguments).assert_success(200, &bytes);
        // Two connections, whose threads may report them in any order.
        let [finished, without] = &relay.all_closed(2, "end")[..] else { unreachable!() };
        assert_closed(finished, "finished", &nginx.address.to_string(), "direct");
        assert_eq!(without["end"], "unauthenticated", "{without}");
    }
}

#[test]
fn wrong_password_is_rejected_by_every_proxy_method() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let nginx = Nginx::start().with_file("file", b"secret");
    let folder = Folder::new();
    let mut relay = relay_with_users(&folder);
    for user in ["ann:wrong", "bob:correct horse", "ann:"] {
        let name = user.split(':').next();
        let fetched = curl(&[&proxy_option("http", relay.address()), "-U", user, &nginx.url("file")]);
        fetched.assert_ended(0, 407);
        assert!(!fetched.text().contains("secret"));
        let event = relay.closed();
        assert_eq!((event["end"].as_str(), event["user"].as_str()), (Some("unauthenticated"), name), "{event}");

        let fetched = curl(&[&proxy_option("http", relay.address()), "-p", "-U", user, &nginx.url("file")]);
        assert_eq!((fetched.code, fetched.transfers[0].connect_status), (56, 407), "{}", fetched.err);
        assert_eq!(relay.closed()["end"], "unauthenticated");

        // 97 is curl's exit code for every error of the SOCKS handshake.
        let fetched = curl(&[&proxy_option("socks5h", relay.address()), "-U", user, &nginx.url("file")]);
        assert_eq!(fetched.code, 97, "{}", fetched.err);
        let event = relay.closed();
        assert_eq!(
            (event["end"].as_str(), event["bytes_down"].as_u64()),
            (Some("unauthenticated"), Some(0)),
            "{event}"
        );
    }
}

#[test]
fn missing_password_is_rejected_by_every_proxy_method() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let folder = Folder::new();
    let mut relay = relay_with_users(&folder);
    for (scheme, code, status) in [("http", 0, 407), ("socks5h", 97, 0), ("socks4a", 97, 0)] {
        curl(&[&proxy_option(scheme, relay.address()), "http://127.0.0.1:9/"]).assert_ended(code, status);
        let event = relay.closed();
        assert_eq!((&event["end"], &event["target"]), (&"unauthenticated".into(), &().into()), "{event}");
    }
}
