//! User names and passwords, right and wrong, as curl sends them.

use super::curl::{by, closed, curl, says};
use super::programs::missing;
use super::servers::Nginx;
use crate::harness::{Folder, HTPASSWD, Relay, pattern};

/// A relay whose listener requires a user of [`HTPASSWD`].
pub fn relay_with_users(folder: &Folder) -> Relay {
    let users = folder.write("users", HTPASSWD);
    Relay::listen(&[&format!("auto://127.0.0.1:0?users={}", users.display())])
}

#[test]
fn right_password_is_accepted_by_every_proxy_method() {
    if missing(&["curl", "nginx"]) {
        return;
    }
    let bytes = pattern(200_000);
    let nginx = Nginx::start().serves("file", &bytes);
    let folder = Folder::new();
    let mut relay = relay_with_users(&folder);
    for (scheme, more) in [("http", "-S"), ("http", "-p"), ("http", "--proxy-basic"), ("socks5h", "-S")] {
        let proxy = by(scheme, relay.address());
        curl(&[&proxy, more, "-U", "ann:correct horse", &nginx.url("file")]).brought(200, &bytes);
        let event = closed(&mut relay, "finished", &nginx.address.to_string(), "direct");
        assert_eq!(event["user"], "ann", "{event}");
    }
    assert!(nginx.seen(4).len() == 4);
}

/// `--proxy-anyauth` sends a request without a password first, and repeats it with the scheme that the relay demands.
#[test]
fn proxy_anyauth_retries_with_the_demanded_scheme() {
    if missing(&["curl", "nginx"]) {
        return;
    }
    let bytes = pattern(200_000);
    let nginx = Nginx::start().serves("file", &bytes);
    let folder = Folder::new();
    let mut relay = relay_with_users(&folder);
    for tunnel in ["-S", "-p"] {
        let proxy = by("http", relay.address());
        let arguments = [&proxy, tunnel, "--proxy-anyauth", "-U", "ann:correct horse", &nginx.url("file")];
        curl(&arguments).brought(200, &bytes);
        // Two connections, possibly accepted by different threads.
        let [finished, without] = &relay.all_closed(2, "end")[..] else { unreachable!() };
        says(finished, "finished", &nginx.address.to_string(), "direct");
        assert_eq!(without["end"], "unauthenticated", "{without}");
    }
}

#[test]
fn wrong_password_is_rejected_by_every_proxy_method() {
    if missing(&["curl", "nginx"]) {
        return;
    }
    let nginx = Nginx::start().serves("file", b"secret");
    let folder = Folder::new();
    let mut relay = relay_with_users(&folder);
    for user in ["ann:wrong", "bob:correct horse", "ann:"] {
        let name = user.split(':').next();
        let fetched = curl(&[&by("http", relay.address()), "-U", user, &nginx.url("file")]);
        fetched.ended(0, 407);
        assert!(!fetched.text().contains("secret"));
        let event = relay.closed();
        assert_eq!((event["end"].as_str(), event["user"].as_str()), (Some("unauthenticated"), name), "{event}");

        let fetched = curl(&[&by("http", relay.address()), "-p", "-U", user, &nginx.url("file")]);
        assert_eq!((fetched.code, fetched.transfers[0].connect_status), (56, 407), "{}", fetched.err);
        assert_eq!(relay.closed()["end"], "unauthenticated");

        // 97 is curl's exit code for every error of the SOCKS handshake.
        let fetched = curl(&[&by("socks5h", relay.address()), "-U", user, &nginx.url("file")]);
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
    if missing(&["curl"]) {
        return;
    }
    let folder = Folder::new();
    let mut relay = relay_with_users(&folder);
    for (scheme, code, status) in [("http", 0, 407), ("socks5h", 97, 0), ("socks4a", 97, 0)] {
        curl(&[&by(scheme, relay.address()), "http://127.0.0.1:9/"]).ended(code, status);
        let event = relay.closed();
        assert_eq!((&event["end"], &event["target"]), (&"unauthenticated".into(), &().into()), "{event}");
    }
}
