//! Contents of the stream of snapshots, and slow readers.

use std::io::Write;
use std::net::TcpStream;

use crate::fixture::Fixture;
use crate::harness::{accept, connect, eventually, pattern, read_exactly, serve, server};

/// Maximum number of sessions in a snapshot, equal to the constant of the relay.
const MOST_SESSIONS: usize = 100;

#[test]
fn snapshot_shows_rates_sessions_paths_and_profiles() {
    let (listener, target) = server();
    let fixture =
        Fixture::with("", &format!("kind = \"tcp\"\ntarget = \"{target}\"\nname = \"door\"\nprofile = \"lan\""));
    let mut snapshots = fixture.stream();
    assert_eq!(snapshots.next()["open"], 0);

    let mut client = connect(fixture.clients);
    let mut server = accept(&listener);
    server.write_all(&pattern(300_000)).unwrap();
    read_exactly(&mut client, 300_000);
    let shown = snapshots.find(|snapshot| snapshot["moved"]["down"] == 300_000);
    let session = &shown["sessions"][0];
    assert_eq!((&session["target"], &session["path"]), (&target.to_string().into(), &"direct".into()));
    // The rate is the number of bytes in the last second.
    let rate = session["rate"]["down"].as_u64().unwrap();
    assert!((1..1_000_000).contains(&rate) && shown["rate"]["down"].as_u64() > Some(0), "{shown:#}");
    assert!(session["down"]["rtt_seconds"].is_number() && session["up"]["congestion"].is_string(), "{session:#}");
    assert_eq!(shown["open"], 1);
    assert_eq!((&shown["paths"][0]["path"], &shown["paths"][0]["sessions"]), (&"direct".into(), &1.into()));
    let granted = &shown["profiles"][0];
    assert_eq!((&granted["place"], &granted["profile"]), (&"door".into(), &"lan".into()), "{shown:#}");
    assert!(granted["settings"][0].as_str().unwrap().contains(": "), "{granted:#}");
    let quiet = snapshots.find(|snapshot| snapshot["rate"]["down"] == 0);
    assert_eq!(quiet["sessions"][0]["rate"]["down"], 0, "{quiet:#}");
}

#[test]
fn snapshot_events_exclude_closed_sessions() {
    let target = serve(|mut stream| drop(stream.write_all(b"hello")));
    let mut fixture = Fixture::with("", &format!("kind = \"tcp\"\ntarget = \"{target}\""));
    read_exactly(&mut connect(fixture.clients), 5);
    fixture.relay.closed();
    fixture.relay.signal("HUP");
    fixture.relay.next(|event| event["event"] == "reloaded");
    let mut snapshots = fixture.stream();
    let events = snapshots.next()["events"].clone();
    let lines: Vec<&str> = events.as_array().unwrap().iter().map(|event| event["line"].as_str().unwrap()).collect();
    assert!(lines[0].contains(" reloaded listeners=1"), "the newest first: {lines:?}");
    assert!(lines.iter().any(|line| line.contains("listening listener=admin kind=admin")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains(" closed ")), "{lines:?}");
    let all: serde_json::Value = serde_json::from_str(&fixture.get("/api/events", &[]).body).unwrap();
    assert_eq!(all, events);
}

#[test]
fn snapshot_shows_the_sessions_with_the_highest_rates() {
    let (listener, target) = server();
    let fixture = Fixture::with("", &format!("kind = \"tcp\"\ntarget = \"{target}\""));
    let open = |_| {
        let client = connect(fixture.clients);
        (client, accept(&listener))
    };
    let mut pairs: Vec<(TcpStream, TcpStream)> = (0..MOST_SESSIONS + 20).map(open).collect();
    let mut snapshots = fixture.stream();
    // A snapshot in the order of age would omit the oldest session; in the order of rate it comes first.
    let busiest = pairs[0].0.local_addr().unwrap().to_string();
    snapshots.find(|snapshot| snapshot["open"] == MOST_SESSIONS + 20);
    pairs[0].1.write_all(&pattern(50_000)).unwrap();
    read_exactly(&mut pairs[0].0, 50_000);
    let shown = snapshots.find(|snapshot| snapshot["rate"]["down"].as_u64() > Some(0));
    let sessions = shown["sessions"].as_array().unwrap();
    assert_eq!((sessions.len(), &sessions[0]["client"]), (MOST_SESSIONS, &busiest.into()));
    assert_eq!(shown["paths"][0]["sessions"], MOST_SESSIONS + 20);
}

/// For a client that does not read, the relay stores no snapshots and delays no other client. When the client reads
/// again, snapshots are missing.
#[test]
fn slow_readers_miss_snapshots_without_memory_growth() {
    let (listener, target) = server();
    let fixture = Fixture::with("", &format!("kind = \"tcp\"\ntarget = \"{target}\""));
    // With these sessions a snapshot has about 100 KB, more than the kernel buffers for a client that does not read.
    let open = |_| {
        let client = connect(fixture.clients);
        (client, accept(&listener))
    };
    let _pairs: Vec<(TcpStream, TcpStream)> = (0..MOST_SESSIONS).map(open).collect();
    let mut slow: Vec<_> = (0..8)
        .map(|_| {
            let slow = fixture.stream();
            socket2::SockRef::from(&slow.stream).set_recv_buffer_size(32 << 10).unwrap();
            slow
        })
        .collect();
    let mut quick = fixture.stream();
    quick.find(|snapshot| snapshot["sessions"].as_array().is_some_and(|all| all.len() == MOST_SESSIONS));
    let before = fixture.relay.resident_kib();
    let numbers: Vec<u64> = (0..8).map(|_| quick.next()["number"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|two| two[1] == two[0] + 1), "the quick reader misses no snapshot: {numbers:?}");
    let grown = fixture.relay.resident_kib().saturating_sub(before);
    // Eight stored snapshots for each of the eight slow readers would need about 7 MB.
    assert!(grown < 3000, "{grown} KiB more");
    for slow in &mut slow {
        let (mut last, mut missed) = (slow.next()["number"].as_u64().unwrap(), false);
        eventually("a gap in the numbers and the current snapshot", || {
            let number = slow.next()["number"].as_u64().unwrap();
            missed |= number > last + 1;
            last = number;
            (missed && number >= numbers[7]).then_some(())
        });
    }
}
