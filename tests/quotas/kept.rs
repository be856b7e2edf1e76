//! Quotas outlast the process: killed, restarted, upgraded.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::harness::*;
use crate::programs::is_any_missing;
use crate::scene::*;

const QUOTA: &str = "[limits]\nusage_file = \"USAGE\"\n[user.alice]\nquota = \"1MiB/day\"\n";

/// The time after which moved bytes are in the usage file.
const STORED_AFTER: Duration = Duration::from_secs(10);

fn text() -> String {
    format!("{QUOTA}{LISTENER}")
}

#[test]
fn killed_relay_loses_at_most_ten_seconds_of_usage() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let mut scene = Scene::new(&text());
    // A session that the quota ends, and a session that ends in order.
    let running = scene.start_endless("alice", 0);
    assert!([18, 56].contains(&{ running }.exit_code()), "over the quota");
    scene.relay.closed();
    scene.reload(&text().replace("1MiB", "2MiB"));
    assert_eq!(scene.download("alice", 100_000).code, 0);
    let used = (1 << 20) + transferred_bytes(&scene.relay.closed());
    pause_until(Instant::now() + STORED_AFTER);
    let mut scene = scene.kill_and_start(&text().replace("1MiB", "2MiB"));
    assert_eq!(scene.used(), used);
    assert_eq!(scene.download("alice", 50_000).code, 0);
    let used = used + transferred_bytes(&scene.relay.closed());
    assert_eq!(scene.used(), used);
    // At an orderly end the last bytes are written as well.
    scene.relay.signal("TERM");
    assert_eq!(scene.relay.exit_code(), Some(0));
    assert_eq!(scene.kill_and_start(&text()).used(), used);
}

/// The old process serves its session to the end, and the new process counts the bytes of that session.
#[test]
fn both_processes_of_an_upgrade_share_one_quota() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let mut scene = Scene::new(&format!("[timeouts]\nupgrade_drain = \"1h\"\n{}", text()));
    let (listener, target) = server();
    let mut old = tunnel(&scene, target);
    let mut far = accept(&listener);
    scene.relay.signal("USR2");
    scene.relay.upgraded();
    eventually("the new process", || scene.relay.sessions().is_empty().then_some(()));
    let before = scene.used();
    far.write_all(&pattern(200_000)).unwrap();
    assert!(read_exactly(&mut old, 200_000) == pattern(200_000));
    eventually("the bytes of the old process", || (scene.used() == before + 200_000).then_some(()));
    assert!([18, 56].contains(&scene.download("alice", 2 << 20).code));
    assert_eq!(transferred_bytes(&scene.relay.closed()) + before + 200_000, 1 << 20, "the new process counts both");
    // The old process learns that nothing is left.
    eventually("the end of the old session", || far.write_all(b"!").is_err().then_some(()));
    let closed = scene.relay.closed();
    assert_eq!(closed["end"], "over_quota", "{closed}");
    assert!((200_000..210_000).contains(&transferred_bytes(&closed)), "{closed}");
    assert_eq!(read_remaining(&mut old).1, Ending::Reset);
}

/// A SOCKS5 tunnel of alice.
fn tunnel(scene: &Scene, target: std::net::SocketAddr) -> std::net::TcpStream {
    let std::net::SocketAddr::V4(target) = target else { panic!("IPv4 only") };
    let mut stream = scene.relay.connect();
    stream.write_all(b"\x05\x01\x02\x01\x05alice\x05baton").unwrap();
    assert_eq!(read_exactly(&mut stream, 4), [5, 2, 1, 0]);
    let request = [&[5, 1, 0, 1][..], &target.ip().octets(), &target.port().to_be_bytes()].concat();
    stream.write_all(&request).unwrap();
    assert_eq!(read_exactly(&mut stream, 10)[1], 0);
    stream
}

/// Each file has its own bytes.
#[test]
fn reload_switches_the_usage_file() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let mut scene = Scene::new(&text());
    assert_eq!(scene.download("alice", 100_000).code, 0);
    let used = transferred_bytes(&scene.relay.closed());
    scene.reload(&text().replace("USAGE", "USAGE.other"));
    eventually("the bytes of the other file", || (scene.used() == 0).then_some(()));
    assert_eq!(scene.download("alice", 50_000).code, 0);
    let other = transferred_bytes(&scene.relay.closed());
    assert_eq!(scene.used(), other);
    let scene = scene.kill_and_start(&text());
    assert_eq!(scene.used(), used, "the first file has all bytes from before the reload");
}

/// SQLite creates its journal beside the database; a directory of that name makes writes fail.
#[test]
fn failed_usage_writes_are_retried() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let mut scene = Scene::new(&text());
    let obstacle = scene.folder.0.join("usage.db-journal");
    std::fs::create_dir(&obstacle).unwrap();
    assert_eq!(scene.download("alice", 100_000).code, 0);
    let used = transferred_bytes(&scene.relay.closed());
    let warning_with = |word: &'static str| {
        move |event: &serde_json::Value| {
            event["event"] == "warning" && event["message"].as_str().unwrap().contains(word)
        }
    };
    let warning = scene.relay.next(warning_with("is not written to"));
    assert!(warning["message"].as_str().unwrap().contains("usage.db: "), "{warning}");
    assert_eq!(scene.used(), used);
    std::fs::remove_dir(&obstacle).unwrap();
    scene.relay.next(warning_with("again"));
    assert_eq!(scene.kill_and_start(&text()).used(), used);
}

/// A file that is no database, and a directory that is missing: a start fails, a reload changes nothing.
#[test]
fn unusable_usage_file_is_an_error_at_start_and_reload() {
    let mut scene = Scene::new(&text());
    scene.folder.write_with_mode("damaged.db", vec![7; 8192], 0o600);
    for (name, why) in [("damaged.db", "file is not a database"), ("none/usage.db", "unable to open database file")] {
        let file = scene.folder.0.join(name).display().to_string();
        let other = text().replace("USAGE", &file);
        let path = scene.folder.write(
            "other.toml",
            format!("version = 1\n{}", other.replace("USERS", &scene.folder.0.join("users").display().to_string())),
        );
        let output = ekiden().args(["run", "--admin", "off", "-c"]).arg(path).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains(why) && errors.contains(&file), "{errors}");
        let all = text().replace("USAGE", &file).replace("1MiB", "5B");
        scene.folder.write(
            "ekiden.toml",
            format!(
                "version = 1\nthreads = 2\n{}",
                all.replace("USERS", &scene.folder.0.join("users").display().to_string())
            ),
        );
        scene.relay.signal("HUP");
        let rejected = scene.relay.next(|event| event["event"] == "reload_rejected");
        assert!(rejected.to_string().contains(why), "{rejected}");
        assert_eq!(scene.account("user", "alice")["quota_bytes"], 1 << 20);
    }
}
