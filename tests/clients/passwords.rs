//! Passwords for other proxies, and for another ekiden.

use super::curl::{by, closed, curl};
use super::hops::relay_by;
use super::programs::{find, missing};
use super::servers::{AUTHENTICATION_OF_SQUID, Dante, Nginx, Squid};
use super::users::relay_with_users;
use crate::harness::{Folder, HTPASSWD, nobody, pattern, skipped};

#[test]
fn squid_hop_checks_the_password_of_the_relay() {
    if missing(&["curl", "nginx", "squid"]) {
        return;
    }
    if find(AUTHENTICATION_OF_SQUID).is_none() {
        return skipped("squid has no helper for passwords");
    }
    let squid = Squid::with_users(HTPASSWD);
    let bytes = pattern(300_000);
    let nginx = Nginx::start().serves("file", &bytes);
    let target = nginx.address.to_string();
    let url = nginx.url("file");
    let path = squid.hop();

    let mut relay = relay_by(&[&format!("http://ann:correct%20horse@{}", squid.address)]);
    for (scheme, tunnel) in [("socks5h", "-S"), ("http", "-p"), ("http", "-S")] {
        curl(&[&by(scheme, relay.address()), tunnel, &url]).brought(200, &bytes);
        closed(&mut relay, "finished", &target, &path);
    }

    for hop in [format!("http://ann:wrong@{}", squid.address), squid.hop()] {
        let mut relay = relay_by(&[&hop]);
        // The client must not be asked for a password: the wrong password is the relay's.
        for (scheme, tunnel, code, status, connect_status) in
            [("socks5h", "-S", 97, 0, 0), ("http", "-p", 56, 0, 403), ("http", "-S", 0, 403, 0)]
        {
            let fetched = curl(&[&by(scheme, relay.address()), tunnel, &url]);
            fetched.ended(code, status);
            assert_eq!(fetched.transfers[0].connect_status, connect_status, "{}", fetched.err);
            let event = closed(&mut relay, "denied_by_hop", &target, &path);
            assert_eq!(event["detail"], format!("hop {path}"), "{tunnel}: {event}");
        }
    }
}

#[test]
fn dante_rejects_missing_and_wrong_passwords() {
    if missing(&["curl", "danted"]) {
        return;
    }
    let dante = Dante::asking_for("username", "pass");
    let target = nobody().to_string();
    for hop in [dante.hop(), format!("socks5://nosuchuser:wrong@{}", dante.address)] {
        let mut relay = relay_by(&[&hop]);
        curl(&[&by("http", relay.address()), &format!("http://{target}/")]).ended(0, 403);
        let event = closed(&mut relay, "denied_by_hop", &target, &dante.hop());
        assert_eq!(event["detail"], format!("hop {}", dante.hop()), "{event}");
        curl(&[&by("socks5h", relay.address()), &format!("http://{target}/")]).ended(97, 0);
        closed(&mut relay, "denied_by_hop", &target, &dante.hop());
    }
}

#[test]
fn ekiden_hop_checks_the_password_of_the_relay() {
    if missing(&["curl", "nginx"]) {
        return;
    }
    let folder = Folder::new();
    let mut far = relay_with_users(&folder);
    let bytes = pattern(300_000);
    let nginx = Nginx::start().serves("file", &bytes);
    let target = nginx.address.to_string();
    for kind in ["socks5", "http"] {
        let path = format!("{kind}://{}", far.address());
        let mut near = relay_by(&[&format!("{kind}://ann:correct%20horse@{}", far.address())]);
        for scheme in ["http", "socks5h"] {
            curl(&[&by(scheme, near.address()), &nginx.url("file")]).brought(200, &bytes);
            closed(&mut near, "finished", &target, &path);
        }
        drop(near);
        for _ in 0..2 {
            assert_eq!(closed(&mut far, "finished", &target, "direct")["user"], "ann");
        }
        let mut near = relay_by(&[&format!("{kind}://ann:wrong@{}", far.address())]);
        for (scheme, code, status) in [("http", 0, 403), ("socks5h", 97, 0)] {
            curl(&[&by(scheme, near.address()), &nginx.url("file")]).ended(code, status);
            let event = closed(&mut near, "denied_by_hop", &target, &path);
            assert_eq!(event["detail"], format!("hop {path}"), "{scheme}: {event}");
            assert_eq!(far.closed()["end"], "unauthenticated");
        }
    }
}
