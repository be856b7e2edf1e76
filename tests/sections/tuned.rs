//! Sections between relays are tuned while they run: the resulting socket options, the profile's own settings, and
//! those that are left alone.

use std::io::Write;
use std::os::fd::AsFd;
use std::process::Command;

use ekiden_sys::tuned::tcp_timers;
use serde_json::Value;

use crate::harness::*;
use crate::relays::*;
use crate::streams::*;

/// A home relay and one behind it, which have these keys in the profile of the section between them.
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
        let home = near.home(&format!("{profile}{relay}{}", everything_by("way", &["far".to_owned()])), AUTO);
        Self { home, far, site }
    }

    /// Both ends of the section between them, once bytes have gone through it and `settled` says that it is as expected.
    fn tuning(&self, settled: impl Fn(&Value) -> bool) -> [Value; 2] {
        let (mut client, mut server) = pair(&self.home);
        eventually("both ends to be as expected", || {
            talk(&mut client, &mut server);
            let ends = [&self.home.sessions()[0]["up"], &self.far.sessions()[0]["down"]];
            let tunings = ends.map(|end| end["tuning"].clone());
            tunings.iter().all(&settled).then_some(tunings)
        })
    }

    /// The retransmission timeout of the section between them, milliseconds, as others see it.
    fn timeout(&self) -> f64 {
        let to = self.site.address.to_string();
        let seen = Command::new("ss").args(["-Htin", "state", "established", "dst", &to]).output().unwrap();
        let seen = String::from_utf8(seen.stdout).unwrap();
        let timeouts = seen.split_whitespace().filter_map(|word| word.strip_prefix("rto:")?.parse().ok());
        // Ready ones wait beside it; the session's has had the most round trips.
        timeouts.fold(f64::INFINITY, f64::min)
    }
}

/// Whether the kernel lacks the options of timers: then a section says so, and the tests of their values are skipped.
fn has_no_timer_options() -> bool {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    if tcp_timers(listener.as_fd()).rto_min.is_some() {
        return false;
    }
    let is_refused = |tuning: &Value, key: &str| {
        tuning["refused"].as_array().is_some_and(|all| all.iter().any(|told| told.as_str().unwrap().starts_with(key)))
    };
    Pair::with("").tuning(|tuning| ["rto_min", "rto_max", "delack_max"].iter().all(|key| is_refused(tuning, key)));
    skipped("this kernel has no TCP_RTO_MIN_US (Linux 6.15), which `refused` of the section says");
    true
}

/// The ends are this machine's, so that round trips are short: then all values are the least, but for the clocks' ticks.
fn is_least(tuning: &Value) -> bool {
    let near = |key: &str, wanted: f64| tuning[key].as_f64().is_some_and(|value| (value / wanted - 1.0).abs() < 0.2);
    near("rto_min_seconds", 0.028) && near("rto_max_seconds", 1.0) && near("delack_max_seconds", 0.008)
}

#[test]
fn both_ends_are_tuned_and_nobody_elses() {
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
    talk(&mut client, &mut server);
    let sessions = [section.home.sessions(), section.far.sessions()];
    let session = |sessions: &Vec<Value>| sessions.last().unwrap().clone();
    assert!(session(&sessions[0])["down"]["tuning"].is_null(), "the client's section: {sessions:?}");
    assert!(session(&sessions[1])["up"]["tuning"].is_null(), "the server's section: {sessions:?}");
    assert!(session(&sessions[0])["up"]["tuning"]["record"].as_u64().is_some_and(|record| record >= 4096));

    let admin = format!("unix:{}", section.home.admin.display());
    let row = |line: &str| line.contains(" server ") && line.contains("doubled") && line.contains("1000.0ms");
    let shown = || String::from_utf8(ekiden().args(["status", "--admin", &admin]).output().unwrap().stdout).unwrap();
    let status = eventually("a table of it", || Some(shown()).filter(|status| status.lines().any(row)));
    assert!(status.contains("DELAYED ACK"), "{status}");
}

#[test]
fn what_a_profile_says_stays() {
    if has_no_timer_options() {
        return;
    }
    let section =
        Pair::with("rto_min = \"92ms\"\ndelack_max = \"60ms\"\nnotsent_lowat = \"256KiB\"\nkeepalive_count = 3");
    let said = |tuning: &Value| {
        let key = |key: &str| tuning[key].as_f64().unwrap_or(0.0);
        [key("rto_min_seconds"), key("delack_max_seconds"), key("notsent_lowat")]
    };
    // `keepalive_count` decides when a dead peer is detected, and would not with the user timeout that `rto_max`
    // implies.
    let tunings =
        section.tuning(|tuning| said(tuning) == [0.092, 0.06, 262_144.0] && tuning["rto_max_seconds"] == 120.0);
    assert!(tunings[0]["rto_seconds"].as_f64().unwrap() > 0.09, "{tunings:?}");
    let later = section.tuning(|tuning| !tuning.is_null());
    assert!(later.iter().all(|tuning| said(tuning) == [0.092, 0.06, 262_144.0]), "{later:?}");
}

#[test]
fn a_profile_that_says_no_leaves_all_alone() {
    if has_no_timer_options() {
        return;
    }
    let tuned = Pair::with("");
    let (mut client, mut server) = pair(&tuned.home);
    let timeout = eventually("a short timeout", || {
        talk(&mut client, &mut server);
        Some(tuned.timeout()).filter(|timeout| *timeout < 100.0)
    });
    assert!(timeout >= 28.0, "{timeout} ms");

    let section = Pair::with("tune = false");
    let (mut client, mut server) = pair(&section.home);
    for _ in 0..50 {
        talk(&mut client, &mut server);
    }
    assert!(
        section.home.sessions()[0]["up"]["tuning"].is_null() && section.far.sessions()[0]["down"]["tuning"].is_null()
    );
    assert!(section.timeout() >= 200.0, "the kernel's own: {} ms", section.timeout());
}

/// Bytes written one by one arrive unchanged, also where pieces were coalesced and several records opened at once.
#[test]
fn small_pieces_arrive_whole_and_in_order() {
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
    assert!(read_all(&mut server) == expected, "something changed on the way");
    join(writing);
}

/// While pieces are coalesced the receiver is not woken for each; afterwards a single piece is as fast as any.
#[test]
fn a_piece_behind_a_row_of_pieces_arrives() {
    let section = Pair::with("");
    let (mut client, mut server) = pair(&section.home);
    client.set_nodelay(true).unwrap();
    for _ in 0..20 {
        let row: Vec<u8> = (0..2000).flat_map(|at: u32| at.to_be_bytes()).collect();
        row.chunks(4).for_each(|piece| client.write_all(piece).unwrap());
        assert!(read_exactly(&mut server, row.len()) == row, "pieces were lost or swapped");
        client.write_all(b"!").unwrap();
        assert_eq!(read_exactly(&mut server, 1), b"!");
    }
}
