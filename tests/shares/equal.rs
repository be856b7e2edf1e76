//! Equal and weighted shares.

use std::net::SocketAddr;

use super::fixture::*;
use super::harness::*;
use super::network::*;
use super::programs::is_any_missing;

/// Bytes of four seconds at [`RATE`].
const LONG: u64 = 10_000_000;

#[test]
fn shares_are_equal_for_all_congestion_controls() {
    for family in BOTH {
        let text =
            [SHARED, &listener(8001, "cubic", ""), &listener(8002, "bbr", ""), &listener(8003, "reno", "")].concat();
        let Some(fixture) = Fixture::of(family, &text) else { return };
        let downloads = [8001, 8001, 8002, 8002, 8003].map(|port| fixture.download(port));
        fixture.wait_for_shares(&[RATE / 5.0; 5]);
        fixture.assert_shares(&downloads.each_ref(), &[RATE / 5.0; 5], LONG);
    }
}

#[test]
fn sole_section_gets_the_full_rate_before_and_after_sharing() {
    for congestion in ["cubic", "bbr"] {
        let text = [SHARED, &listener(8001, congestion, ""), &listener(8002, "cubic", "")].concat();
        let Some(fixture) = Fixture::new(&text) else { return };
        let first = fixture.download(8001);
        fixture.wait_for_shares(&[RATE]);
        fixture.assert_shares(&[&first], &[RATE], LONG / 2);
        let second = fixture.download(8002);
        fixture.wait_for_shares(&[RATE / 2.0; 2]);
        fixture.assert_shares(&[&first, &second], &[RATE / 2.0; 2], LONG / 2);
        drop(second);
        fixture.wait_for_shares(&[RATE]);
        fixture.assert_shares(&[&first], &[RATE], LONG / 2);
    }
}

/// A slow server leaves part of its share unused.
#[test]
fn unused_share_is_available_to_other_sections() {
    let Some(fixture) = Fixture::new(&[SHARED, &listener(8001, "cubic", "")].concat()) else { return };
    let address = SocketAddr::new(fixture.relay_ip(), 8001);
    let slow = fixture.download_by(&["--request-target", SLOW_PATH], address);
    let fast = fixture.download(8001);
    fixture.assert_shares(&[&slow, &fast], &[SLOW, RATE - SLOW], LONG);
}

/// The sections of two relays to a third, which shares its interface toward them.
struct PairOfSections {
    fixture: Fixture,
    _relays: [Relay; 2],
    downloads: [Download; 2],
}

impl PairOfSections {
    /// Starts the relays, and a download over each section, with these parameters of the hop and more arguments for
    /// curl.
    fn download(parameters: &str, arguments: &[&str]) -> Option<Self> {
        let key = Key::new();
        let far = format!(
            "{SHARED}[[listener]]\nname = \"relays\"\nbind = \"0.0.0.0:7000\"\nkind = \"section\"\nkey = \"{}\"\n\
             allow_open = true\nallow_private = true\n",
            key.file.display()
        );
        let fixture = Fixture::new(&far)?;
        let ports = [8001, 8002];
        let relays = ports.map(|port| {
            let hop = format!("section://{}:7000?key={}{parameters}", fixture.relay_ip(), key.public);
            let listener = format!("tcp://127.0.0.1:{port}/{}?allow_private=true", fixture.server);
            fixture.row["client"].inside(|| Relay::run(&["-L", &listener, "-F", &hop], 1))
        });
        let downloads = ports.map(|port| fixture.download_by(arguments, SocketAddr::from(([127, 0, 0, 1], port))));
        Some(Self { fixture, _relays: relays, downloads })
    }
}

/// Encrypted records are paced like plain bytes.
#[test]
fn encrypted_sections_get_equal_shares() {
    let Some(pair) = PairOfSections::download("&encrypt=true", &[]) else { return };
    pair.fixture.wait_for_shares(&[RATE / 2.0; 2]);
    pair.fixture.assert_shares(&pair.downloads.each_ref(), &[RATE / 2.0; 2], LONG);
}

/// A section that waits for its next session has no ceiling, which that session would take for the ceiling of the
/// profile.
#[test]
fn section_is_unlimited_after_its_session() {
    let Some(pair) = PairOfSections::download("", &["--request-target", FINITE_PATH]) else { return };
    pair.fixture.wait_for_shares(&[RATE / 2.0; 2]);
    eventually("the end of both downloads", || pair.downloads.iter().all(|one| one.bytes() == FINITE).then_some(()));
    pair.fixture.wait_unlimited();
}

/// The limited interface is the one toward the server, so the limit applies to uploads only.
#[test]
fn traffic_on_another_interface_is_not_limited() {
    let text = format!("{}{}", SHARED.replace("left", "right"), listener(8001, "cubic", ""));
    let Some(fixture) = Fixture::new(&text) else { return };
    let download = fixture.download(8001);
    let got = measure(&[&download], LONG);
    fixture.wait_unlimited();
    assert!(got.rate() > 3.0 * RATE, "{got:?}");
}

/// Shares in bits per second: one part for the first download, three parts for the second.
const SHARES: [f64; 2] = [RATE / 4.0, RATE * 3.0 / 4.0];

fn check_three_to_one(fixture: &Fixture, downloads: &[Download; 2]) {
    fixture.wait_for_shares(&SHARES);
    let ratio = |got: &Sample| got.bytes[1] as f64 / got.bytes[0] as f64;
    fixture.assert_fair(&downloads.each_ref(), &SHARES, 8_000_000, |got| (2.3..3.7).contains(&ratio(got)));
}

#[test]
fn shares_follow_listener_weights() {
    let text = [SHARED, &listener(8001, "bbr", ""), &listener(8002, "cubic", "weight = 3")].concat();
    let Some(fixture) = Fixture::new(&text) else { return };
    let downloads = [8001, 8002].map(|port| fixture.download(port));
    check_three_to_one(&fixture, &downloads);
}

#[test]
fn shares_follow_user_weights() {
    if is_any_missing(&["htpasswd"]) {
        return;
    }
    let folder = Folder::new();
    let hash = |user| {
        let output = std::process::Command::new("htpasswd").args(["-nbB", "-C4", user, "hunter2"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned() + "\n"
    };
    let users = folder.write("users", hash("alice") + &hash("bob"));
    let text = format!(
        "{SHARED}[user.bob]\nweight = 3\n[[listener]]\nbind = \"0.0.0.0:8001\"\nallow_private = true\nweight = 2\n\
         users = \"{}\"\n",
        users.display()
    );
    let Some(fixture) = Fixture::new(&text) else { return };
    let proxy = SocketAddr::new(fixture.relay_ip(), 8001);
    for way in ["http", "socks5"] {
        let downloads = ["alice", "bob"]
            .map(|user| fixture.download_by(&["--proxy", &format!("{way}://{user}:hunter2@{proxy}")], fixture.server));
        check_three_to_one(&fixture, &downloads);
    }
}
