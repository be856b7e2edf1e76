//! Passwords in the URLs of hops: squid, dante and another ekiden.

use super::curl::{assert_next_closed, curl, proxy_option};
use super::hops::relay_through;
use super::programs::{find, is_any_missing};
use super::servers::{AUTHENTICATION_OF_SQUID, Dante, Nginx, Squid};
use super::users::relay_with_users;
use crate::harness::{Folder, HTPASSWD, pattern, skipped, unused_address};

#[test]
fn squid_hop_checks_the_password_of_the_relay() {
    if is_any_missing(&["curl", "nginx", "squid"]) {
        return;
    }
    if find(AUTHENTICATION_OF_SQUID).is_none() {
        return skipped("squid has no helper for passwords");
    }
    let squid = Squid::with_users(HTPASSWD);
    let bytes = pattern(300_000);
    let nginx = Nginx::start().with_file("file", &bytes);
    let target = nginx.address.to_string();
    let url = nginx.url("file");
    let path = squid.hop();

    let mut relay = relay_through(&[&format!("http://ann:correct%20horse@{}", squid.address)]);
    for (scheme, tunnel) in [("socks5h", "-S"), ("http", "-p"), ("http", "-S")] {
        curl(&[&proxy_option(scheme, relay.address()), tunnel, &url]).assert_success(200, &bytes);
        assert_next_closed(&mut relay, "finished", &target, &path);
    }

    for hop in [format!("http://ann:wrong@{}", squid.address), squid.hop()] {
        let mut relay = relay_through(&[&hop]);
        // 403 and not 407: the missing or wrong password is the relay's, so the client must not be asked for one.
        for (scheme, tunnel, code, status, connect_status) in
            [("socks5h", "-S", 97, 0, 0), ("http", "-p", 56, 0, 403), ("http", "-S", 0, 403, 0)]
        {
            let fetched = curl(&[&proxy_option(scheme, relay.address()), tunnel, &url]);
            fetched.assert_ended(code, status);
            assert_eq!(fetched.transfers[0].connect_status, connect_status, "{}", fetched.err);
            let event = assert_next_closed(&mut relay, "denied_by_hop", &target, &path);
            assert_eq!(event["detail"], format!("hop {path}"), "{tunnel}: {event}");
        }
    }
}

#[test]
fn dante_rejects_missing_and_wrong_passwords() {
    if is_any_missing(&["curl", "danted"]) {
        return;
    }
    let dante = Dante::with_authentication("username", "pass");
    let target = unused_address().to_string();
    for hop in [dante.hop(), format!("socks5://nosuchuser:wrong@{}", dante.address)] {
        let mut relay = relay_through(&[&hop]);
        curl(&[&proxy_option("http", relay.address()), &format!("http://{target}/")]).assert_ended(0, 403);
        let event = assert_next_closed(&mut relay, "denied_by_hop", &target, &dante.hop());
        assert_eq!(event["detail"], format!("hop {}", dante.hop()), "{event}");
        curl(&[&proxy_option("socks5h", relay.address()), &format!("http://{target}/")]).assert_ended(97, 0);
        assert_next_closed(&mut relay, "denied_by_hop", &target, &dante.hop());
    }
}

#[test]
fn ekiden_hop_checks_the_password_of_the_relay() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let folder = Folder::new();
    let mut far = relay_with_users(&folder);
    let bytes = pattern(300_000);
    let nginx = Nginx::start().with_file("file", &bytes);
    let target = nginx.address.to_string();
    for kind in ["socks5", "http"] {
        let path = format!("{kind}://{}", far.address());
        let mut near = relay_through(&[&format!("{kind}://ann:correct%20horse@{}", far.address())]);
        for scheme in ["http", "socks5h"] {
            curl(&[&proxy_option(scheme, near.address()), &nginx.url("file")]).assert_success(200, &bytes);
            assert_next_closed(&mut near, "finished", &target, &path);
        }
        drop(near);
        for _ in 0..2 {
            assert_eq!(assert_next_closed(&mut far, "finished", &target, "direct")["user"], "ann");
        }
        let mut near = relay_through(&[&format!("{kind}://ann:wrong@{}", far.address())]);
        for (scheme, code, status) in [("http", 0, 403), ("socks5h", 97, 0)] {
            curl(&[&proxy_option(scheme, near.address()), &nginx.url("file")]).assert_ended(code, status);
            let event = assert_next_closed(&mut near, "denied_by_hop", &target, &path);
            assert_eq!(event["detail"], format!("hop {path}"), "{scheme}: {event}");
            assert_eq!(far.closed()["end"], "unauthenticated");
        }
    }
}
