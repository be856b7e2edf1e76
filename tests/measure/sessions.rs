//! What the connections of sessions tell.

use serde_json::Value;

use crate::harness::*;
use crate::known::*;
use crate::relays::*;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn a_session_tells_of_all_its_sections_at_both_relays() {
    let (far, target) = (Site::new(), generous(4_000_000));
    let far_relay = far.relay("", "allow_open = true\n");
    let home = Chooser::new(&far, target);
    assert_eq!(take_all(&home.relay, target), 4_000_000);

    let section = learns(&home.relay, &far.key.public, None, |entry| number(&entry["receiving"]["segments"]) > 10.0);
    for direction in ["sending", "receiving"] {
        let rtt = number(&section[direction]["rtt_seconds"]);
        assert!(rtt > 0.0 && rtt < 1.0, "{section}");
    }
    assert!(number(&section["receiving"]["confidence"]) > 0.1, "{section}");
    assert!(number(&section["receiving"]["at_least"]) > 1e5, "{section}");
    assert!(number(&section["receiving"]["age_seconds"]) < 60.0, "{section}");

    let back = learns(&far_relay, &home.site.key.public, None, |entry| number(&entry["sending"]["segments"]) > 10.0);
    assert!(number(&back["sending"]["loss"]) < 0.5, "{back}");
    learns(&far_relay, HERE, None, |entry| number(&entry["receiving"]["segments"]) > 10.0);
    assert_eq!(known(&home.relay, HERE, None).map(|_| ()), None, "it was not this relay that went there");
}

#[test]
fn a_session_that_still_runs_tells_as_well() {
    let far = Site::new();
    let far_relay = far.relay("", "allow_open = true\n");
    let (listener, target) = server();
    let home = Chooser::new(&far, target);
    let mut client = socks5(home.relay.address(), target).unwrap();
    let mut server = accept(&listener);
    let section = eventually("an estimate of a running session", || {
        // Round and round, because only what moves is looked at.
        crate::trouble::passes(&mut server, &mut client, 50_000);
        known(&far_relay, &home.site.key.public, None).filter(|entry| entry["busy"] == true)
    });
    assert!(number(&section["sending"]["segments"]) > 10.0, "{section}");
}

#[test]
fn a_direct_session_tells_of_its_target_s_network() {
    let (far, target) = (Site::new(), generous(1_000_000));
    let _far_relay = far.relay("", "allow_open = true\n");
    let home = Chooser::new(&far, nobody());
    assert_eq!(take_all(&home.relay, target), 1_000_000);
    learns(&home.relay, HERE, None, |entry| number(&entry["receiving"]["segments"]) > 10.0);
}

/// Who neither chooses nor is called by relays has nobody to tell.
#[test]
fn a_relay_on_its_own_measures_nothing() {
    let (mut relay, target) = (Relay::listen(&["auto://127.0.0.1:0"]), generous(1_000_000));
    assert_eq!(take_all(&relay, target), 1_000_000);
    assert_eq!(relay.closed()["end"], "finished");
    assert_eq!(all_of(&relay), Vec::<Value>::new());
}
