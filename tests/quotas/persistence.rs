//! The usage of quotas after a kill, a restart, an upgrade and a reload.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::fixture::*;
use crate::harness::*;
use crate::programs::is_any_missing;

const QUOTA: &str = "[limits]\nusage_file = \"USAGE\"\n[user.alice]\nquota = \"1MiB/day\"\n";

/// Longest time until transferred bytes are in the usage file.
const STORED_AFTER: Duration = Duration::from_secs(10);

fn text() -> String {
    format!("{QUOTA}{LISTENER}")
}

#[test]
fn killed_relay_loses_at_most_ten_seconds_of_usage() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let mut fixture = Fixture::new(&text());
    // Both a session that the quota ends and a session that ends without an error count.
    let running = fixture.start_endless("alice", 0);
    assert!([18, 56].contains(&{ running }.exit_code()), "over the quota");
    fixture.relay.closed();
    fixture.reload(&text().replace("1MiB", "2MiB"));
    assert_eq!(fixture.download("alice", 100_000).code, 0);
    let used = (1 << 20) + transferred_bytes(&fixture.relay.closed());
    pause_until(Instant::now() + STORED_AFTER);
    let mut fixture = fixture.kill_and_start(&text().replace("1MiB", "2MiB"));
    assert_eq!(fixture.used(), used);
    assert_eq!(fixture.download("alice", 50_000).code, 0);
    let used = used + transferred_bytes(&fixture.relay.closed());
    assert_eq!(fixture.used(), used);
    // At SIGTERM the relay writes the last bytes before it exits.
    fixture.relay.signal("TERM");
    assert_eq!(fixture.relay.exit_code(), Some(0));
    assert_eq!(fixture.kill_and_start(&text()).used(), used);
}

/// The old process continues to serve its session, and the new process counts the bytes of that session.
#[test]
fn both_processes_of_an_upgrade_share_one_quota() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let mut fixture = Fixture::new(&format!("[timeouts]\nupgrade_drain = \"1h\"\n{}", text()));
    let (listener, target) = server();
    let mut old = tunnel(&fixture, target);
    let mut far = accept(&listener);
    fixture.relay.signal("USR2");
    fixture.relay.upgraded();
    eventually("the new process", || fixture.relay.sessions().is_empty().then_some(()));
    let before = fixture.used();
    far.write_all(&pattern(200_000)).unwrap();
    assert!(read_exactly(&mut old, 200_000) == pattern(200_000));
    eventually("the bytes of the old process", || (fixture.used() == before + 200_000).then_some(()));
    assert!([18, 56].contains(&fixture.download("alice", 2 << 20).code));
    assert_eq!(transferred_bytes(&fixture.relay.closed()) + before + 200_000, 1 << 20, "the new process counts both");
    // The old process resets its session, because the quota is used up.
    eventually("the end of the old session", || far.write_all(b"!").is_err().then_some(()));
    let closed = fixture.relay.closed();
    assert_eq!(closed["end"], "over_quota", "{closed}");
    assert!((200_000..210_000).contains(&transferred_bytes(&closed)), "{closed}");
    assert_eq!(read_remaining(&mut old).1, Ending::Reset);
}

/// Opens a SOCKS5 tunnel with the credentials of alice.
fn tunnel(fixture: &Fixture, target: std::net::SocketAddr) -> std::net::TcpStream {
    let std::net::SocketAddr::V4(target) = target else { panic!("IPv4 only") };
    let mut stream = fixture.relay.connect();
    stream.write_all(b"\x05\x01\x02\x01\x05alice\x05baton").unwrap();
    assert_eq!(read_exactly(&mut stream, 4), [5, 2, 1, 0]);
    let request = [&[5, 1, 0, 1][..], &target.ip().octets(), &target.port().to_be_bytes()].concat();
    stream.write_all(&request).unwrap();
    assert_eq!(read_exactly(&mut stream, 10)[1], 0);
    stream
}

/// The usage in one file does not change the usage in another file.
#[test]
fn reload_switches_the_usage_file() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let mut fixture = Fixture::new(&text());
    assert_eq!(fixture.download("alice", 100_000).code, 0);
    let used = transferred_bytes(&fixture.relay.closed());
    fixture.reload(&text().replace("USAGE", "USAGE.other"));
    eventually("the bytes of the other file", || (fixture.used() == 0).then_some(()));
    assert_eq!(fixture.download("alice", 50_000).code, 0);
    let other = transferred_bytes(&fixture.relay.closed());
    assert_eq!(fixture.used(), other);
    let fixture = fixture.kill_and_start(&text());
    assert_eq!(fixture.used(), used, "the first file has all bytes from before the reload");
}

/// SQLite creates its journal beside the database: a directory with the name of the journal makes writes fail.
#[test]
fn failed_usage_writes_are_retried() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let mut fixture = Fixture::new(&text());
    let obstacle = fixture.folder.0.join("usage.db-journal");
    std::fs::create_dir(&obstacle).unwrap();
    assert_eq!(fixture.download("alice", 100_000).code, 0);
    let used = transferred_bytes(&fixture.relay.closed());
    let warning_with = |word: &'static str| {
        move |event: &serde_json::Value| {
            event["event"] == "warning" && event["message"].as_str().unwrap().contains(word)
        }
    };
    let warning = fixture.relay.next(warning_with("cannot write the usage of quotas to"));
    assert!(warning["message"].as_str().unwrap().contains("usage.db: "), "{warning}");
    assert_eq!(fixture.used(), used);
    std::fs::remove_dir(&obstacle).unwrap();
    fixture.relay.next(warning_with("again"));
    assert_eq!(fixture.kill_and_start(&text()).used(), used);
}

/// With a file that is not a database, or in a directory that does not exist, a start fails and a reload is rejected.
/// Regression: the relays of the rejected configuration got pools, because the file was opened later.
#[test]
fn unusable_usage_file_is_an_error_at_start_and_reload() {
    let mut fixture = Fixture::new(&text());
    let (own_key, far_key) = (Key::new(), Key::new());
    fixture.folder.write_with_mode("damaged.db", vec![7; 8192], 0o600);
    for (name, why) in [("damaged.db", "file is not a database"), ("none/usage.db", "unable to open database file")] {
        let file = fixture.folder.0.join(name).display().to_string();
        let other = text().replace("USAGE", &file);
        let path = fixture.folder.write(
            "other.toml",
            format!("version = 1\n{}", other.replace("USERS", &fixture.folder.0.join("users").display().to_string())),
        );
        let output = ekiden().args(["run", "--admin", "off", "-c"]).arg(path).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains(why) && errors.contains(&file), "{errors}");
        let all = format!(
            "private_key = {:?}\nforward = [\"far\"]\n{}[[relay]]\nname = \"far\"\naddress = \"{}\"\nkey = \"{}\"\n",
            own_key.file,
            text().replace("USAGE", &file).replace("1MiB", "5B"),
            unused_address(),
            far_key.public
        );
        fixture.folder.write(
            "ekiden.toml",
            format!(
                "version = 1\nthreads = 2\n{}",
                all.replace("USERS", &fixture.folder.0.join("users").display().to_string())
            ),
        );
        fixture.relay.signal("HUP");
        let rejected = fixture.relay.next(|event| event["event"] == "reload_rejected");
        assert!(rejected.to_string().contains(why), "{rejected}");
        assert_eq!(fixture.account("user", "alice")["quota_bytes"], 1 << 20);
        let status: serde_json::Value = serde_json::from_str(&fixture.relay.ask("/api/sessions")).unwrap();
        assert_eq!(status["pools"], serde_json::json!([]));
    }
}
