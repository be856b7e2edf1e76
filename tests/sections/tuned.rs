//! Tuning of running sections between relays: the resulting socket options, the settings of the profile that override
//! them, and the sockets that are not tuned.

use std::io::Write;
use std::os::fd::AsFd;
use std::process::Command;

use ekiden_sys::tuned::tcp_timers;
use serde_json::Value;

use crate::harness::*;
use crate::relays::*;
use crate::streams::*;

/// A home relay and a relay behind it, with the keys of the test in the profile of the section between them.
struct Pair {
    home: Relay,
    far: Relay,
    site: Site,
}

impl Pair {
    fn with(keys: &str) -> Self {
        let [near, site] = [Site::new(), Site::new()];
        let profile = format!("[profile.mine]\nbase = \"lan\"\n{keys}\n");
        let peers = site.admit(&[(&near.key.public, "caller")]);
        let far = site.relay(&profile, &format!("peers = {peers:?}\nprofile = \"mine\"\n"));
        let relay = site.table("far", "encrypt = true\nprofile = \"mine\"\n");
        let home = near.home(&format!("{profile}{relay}{}", route_all_through("way", &["far".to_owned()])), AUTO);
        Self { home, far, site }
    }

    /// The tuning of both ends of the section, once bytes have crossed it and `settled` is true for both ends.
    fn tuning(&self, settled: impl Fn(&Value) -> bool) -> [Value; 2] {
        let (mut client, mut server) = pair(&self.home);
        eventually("the expected tuning at both ends", || {
            exchange_messages(&mut client, &mut server);
            let ends = [&self.home.sessions()[0]["up"], &self.far.sessions()[0]["down"]];
            let tunings = ends.map(|end| end["tuning"].clone());
            tunings.iter().all(&settled).then_some(tunings)
        })
    }

    /// The retransmission timeout of the section in milliseconds, as ss(8) shows it.
    fn timeout(&self) -> f64 {
        let to = self.site.address.to_string();
        let seen = Command::new("ss").args(["-Htin", "state", "established", "dst", &to]).output().unwrap();
        let seen = String::from_utf8(seen.stdout).unwrap();
        let timeouts = seen.split_whitespace().filter_map(|word| word.strip_prefix("rto:")?.parse::<f64>().ok());
        // ss(8) lists ready connections, too. The session's connection has had the most round trips, so its timeout is
        // the shortest.
        timeouts.reduce(f64::min).unwrap_or_else(|| panic!("no timeout in {seen:?}"))
    }
}

/// Whether the kernel lacks the timer options. If so, checks that the section reports them as refused; the tests of
/// their values are skipped.
fn has_no_timer_options() -> bool {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    if tcp_timers(listener.as_fd()).rto_min.is_some() {
        return false;
    }
    let is_refused = |tuning: &Value, key: &str| {
        tuning["refused"].as_array().is_some_and(|all| all.iter().any(|entry| entry.as_str().unwrap().starts_with(key)))
    };
    Pair::with("").tuning(|tuning| ["rto_min", "rto_max", "delack_max"].iter().all(|key| is_refused(tuning, key)));
    skipped("this kernel has no TCP_RTO_MIN_US (Linux 6.15), which `refused` of the section says");
    true
}

/// Whether all timers have their minimum, within 20 % for the tick of the kernel's clock. Both ends of the section are
/// on this machine, so round trips are short.
fn is_least(tuning: &Value) -> bool {
    let near = |key: &str, wanted: f64| tuning[key].as_f64().is_some_and(|value| (value / wanted - 1.0).abs() < 0.2);
    near("rto_min_seconds", 0.028) && near("rto_max_seconds", 1.0) && near("delack_max_seconds", 0.008)
}

#[test]
fn both_ends_of_a_section_are_tuned_and_other_sockets_are_not() {
    if has_no_timer_options() {
        return;
    }
    let section = Pair::with("");
    let tunings = section.tuning(is_least);
    for tuning in tunings {
        assert_eq!(tuning["notsent_lowat"], 1024 * 1024, "{tuning}");
        assert_eq!((&tuning["thin_linear_timeouts"], &tuning["refused"]), (&false.into(), &Value::Array(vec![])));
        assert!(
            tuning["rto_seconds"].as_f64().unwrap() < 0.19 && tuning["route_rto_min_seconds"].is_null(),
            "{tuning}"
        );
    }
    let (mut client, mut server) = pair(&section.home);
    exchange_messages(&mut client, &mut server);
    let sessions = [section.home.sessions(), section.far.sessions()];
    let session = |sessions: &Vec<Value>| sessions.last().unwrap().clone();
    assert!(session(&sessions[0])["down"]["tuning"].is_null(), "the client's section: {sessions:?}");
    assert!(session(&sessions[1])["up"]["tuning"].is_null(), "the server's section: {sessions:?}");
    assert!(session(&sessions[0])["up"]["tuning"]["record"].as_u64().is_some_and(|record| record >= 4096));

    let row = |line: &str| line.contains(" server ") && line.contains("doubled") && line.contains("1000.0ms");
    let status = eventually("the tuning in the status table", || {
        Some(section.home.status(&[])).filter(|status| status.lines().any(row))
    });
    assert!(status.contains("DELAYED ACK"), "{status}");
}

#[test]
fn profile_settings_override_tuning() {
    if has_no_timer_options() {
        return;
    }
    let section =
        Pair::with("rto_min = \"92ms\"\ndelack_max = \"60ms\"\nnotsent_lowat = \"256KiB\"\nkeepalive_count = 3");
    let settings = |tuning: &Value| {
        let key = |key: &str| tuning[key].as_f64().unwrap_or(0.0);
        [key("rto_min_seconds"), key("delack_max_seconds"), key("notsent_lowat")]
    };
    // `keepalive_count` determines when a dead peer is detected. The user timeout that a tuned `rto_max` implies would
    // replace that, so `rto_max` keeps the kernel's default of 120 s.
    let tunings =
        section.tuning(|tuning| settings(tuning) == [0.092, 0.06, 262_144.0] && tuning["rto_max_seconds"] == 120.0);
    assert!(tunings[0]["rto_seconds"].as_f64().unwrap() > 0.09, "{tunings:?}");
    let later = section.tuning(|tuning| !tuning.is_null());
    assert!(later.iter().all(|tuning| settings(tuning) == [0.092, 0.06, 262_144.0]), "{later:?}");
}

#[test]
fn tune_false_keeps_kernel_defaults() {
    if has_no_timer_options() {
        return;
    }
    let tuned = Pair::with("");
    let (mut client, mut server) = pair(&tuned.home);
    let timeout = eventually("a short retransmission timeout", || {
        exchange_messages(&mut client, &mut server);
        Some(tuned.timeout()).filter(|timeout| *timeout < 100.0)
    });
    assert!(timeout >= 28.0, "{timeout} ms");

    let section = Pair::with("tune = false");
    let (mut client, mut server) = pair(&section.home);
    for _ in 0..50 {
        exchange_messages(&mut client, &mut server);
    }
    assert!(
        section.home.sessions()[0]["up"]["tuning"].is_null() && section.far.sessions()[0]["down"]["tuning"].is_null()
    );
    assert!(section.timeout() >= 200.0, "not the kernel's default: {} ms", section.timeout());
}

/// The condition also holds when writes are coalesced and several records are opened at once.
#[test]
fn small_writes_arrive_complete_and_in_order() {
    let section = Pair::with("");
    let (client, mut server) = pair(&section.home);
    client.set_nodelay(true).unwrap();
    let sent = pattern(60_000);
    let expected = sent.clone();
    let writing = std::thread::spawn(move || {
        let mut client = client;
        for piece in sent.chunks(17) {
            client.write_all(piece).unwrap();
        }
    });
    assert!(read_all(&mut server) == expected, "bytes were changed");
    join(writing);
}

/// While small writes are coalesced, the receiver is not woken for each write; a single write after them must still be
/// delivered.
#[test]
fn single_write_after_a_burst_of_small_writes_arrives() {
    let section = Pair::with("");
    let (mut client, mut server) = pair(&section.home);
    client.set_nodelay(true).unwrap();
    for _ in 0..20 {
        let row: Vec<u8> = (0..2000).flat_map(|at: u32| at.to_be_bytes()).collect();
        row.chunks(4).for_each(|piece| client.write_all(piece).unwrap());
        assert!(read_exactly(&mut server, row.len()) == row, "writes were lost or swapped");
        client.write_all(b"!").unwrap();
        assert_eq!(read_exactly(&mut server, 1), b"!");
    }
}
