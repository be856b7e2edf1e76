//! What relays tell each other, and what not.

use std::time::Instant;

use serde_json::Value;

use crate::harness::*;
use crate::known::*;
use crate::relays::*;

fn age(entry: &Value) -> f64 {
    entry["sending"]["age_seconds"].as_f64().unwrap()
}

#[test]
fn a_relay_tells_its_neighbours_what_it_knows() {
    let (far, target) = (Site::new(), generous(2_000_000));
    let _far_relay = far.relay("", "allow_open = true\n");
    let home = Chooser::new(&far, target);
    take_all(&home.relay, target);
    let (far, own) = (&*far.key.public, &*home.site.key.public);
    let told = learns(&home.relay, own, Some(far), |entry| entry["sending"]["segments"].as_f64() > Some(10.0));
    assert!(told["sending"]["rtt_seconds"].as_f64() > Some(0.0), "{told}");
}

/// The relay in the middle does not choose: it is asked, and so it asks.
#[test]
fn sections_between_other_relays_are_known_though_nothing_flows_there() {
    let (middle, far) = (Site::new(), Site::new());
    let _far_relay = far.relay("", "allow_open = true\n");
    let _middle_relay = middle.relay(&far.table("far", ""), "allow_open = true\n");
    let home = Chooser::new(&middle, nobody());
    let (middle, far) = (&*middle.key.public, &*far.key.public);
    let told = learns(&home.relay, far, Some(middle), |entry| entry["sending"]["segments"].as_f64() > Some(1.0));
    assert!(told["receiving"]["segments"].as_f64() > Some(1.0), "{told}");
}

/// A network is told only to those whose sessions have gone there through the relay: nobody learns where others go.
#[test]
fn nobody_learns_where_others_go() {
    let (far, target) = (Site::new(), generous(500_000));
    let _far_relay = far.relay("", "allow_open = true\n");
    let (mine, other) = (Chooser::new(&far, target), Chooser::new(&far, nobody()));
    // Both want to know of the network, because they go there; only one through the far relay.
    let direct = generous(500_000);
    take_all(&mine.relay, target);
    take_all(&mine.relay, direct);
    take_all(&other.relay, direct);
    let far = &*far.key.public;
    learns(&mine.relay, HERE, Some(far), |_| true);

    // What the far relay knows of the first one's section is news once more, which the other hears in a later answer.
    let begun = Instant::now();
    take_all(&mine.relay, target);
    let own = &*mine.site.key.public;
    learns(&other.relay, own, Some(far), |entry| age(entry) < begun.elapsed().as_secs_f64());
    assert_eq!(known(&other.relay, HERE, Some(far)), None);
}
