//! The reset of quotas at midnight UTC. The test sets the clock of the virtual machine, so this file has no other
//! test.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[allow(dead_code, reason = "this test uses its own part of it")]
#[path = "quotas/fixture.rs"]
mod fixture;
mod harness;
#[path = "clients/programs.rs"]
mod programs;

use std::process::Command;
use std::time::{Duration, Instant};

use fixture::*;
use harness::*;
use programs::is_any_missing;

/// A daily quota for alice, and a monthly quota for bob.
const LIMITS: &str =
    "[limits]\nusage_file = \"USAGE\"\n[user.alice]\nquota = \"1MiB/day\"\n[user.bob]\nquota = \"1MiB/month\"\n";

#[test]
fn quotas_reset_at_midnight_utc() {
    if is_any_missing(&["curl"]) {
        return;
    }
    if !is_virtual() {
        return skipped("the test sets the clock, and needs a virtual kernel");
    }
    let set_clock = |time: &str| {
        assert!(Command::new("date").args(["--utc", "--set", time]).output().unwrap().status.success());
    };
    set_clock("2027-12-31T23:59:00Z");
    let mut fixture = Fixture::new(&format!("{LIMITS}{LISTENER}"));
    let quotas = [("alice", "2028-01-01T00:00:00Z"), ("bob", "2028-01-01T00:00:00Z")];
    for (user, ends) in quotas {
        assert!([18, 56].contains(&fixture.download(user, 2 << 20).code));
        assert_eq!(fixture.download(user, 1).code, 97);
        assert_eq!(fixture.account("user", user)["quota_ends"], ends);
    }
    pause_until(Instant::now() + Duration::from_secs(60));
    for (user, _) in quotas {
        assert_eq!(fixture.download(user, 100_000).code, 0, "{user}");
    }
    set_clock("2028-01-15T23:59:52Z");
    // The usage file is written every 5 s and at midnight. The bytes of this download have not been written before
    // midnight, and must be counted for the day that ends.
    pause_until(Instant::now() + Duration::from_millis(7800));
    assert_eq!(fixture.download("alice", 100_000).code, 0);
    pause_until(Instant::now() + Duration::from_secs(2));
    assert_eq!(fixture.used(), 0, "the daily quota is reset");
    assert!(fixture.account("user", "bob")["used_bytes"].as_u64().unwrap() > 100_000, "the monthly quota remains");
    let events = [
        fixture.relay.next(|event| event["event"] == "quota_used"),
        fixture.relay.next(|event| event["event"] == "quota_used"),
    ];
    assert_eq!(events.map(|event| event["until"].clone()), ["2028-01-01T00:00:00Z"; 2]);
}
