//! Interfaces that change, come and go while sessions run.

use crate::scene::*;

const SHORT: u64 = 5_000_000;

#[test]
fn a_new_rate_holds_for_running_sessions() {
    let door = listener(8001, "cubic", "");
    let Some(mut scene) = Scene::new(&[SHARED, &door].concat()) else { return };
    let downloads = [8001, 8001].map(|port| scene.download(port));
    let both = &downloads.each_ref();
    scene.settles(&[RATE / 2.0; 2]);
    scene.shares(both, &[RATE / 2.0; 2], SHORT);

    scene.offer(&[&SHARED.replace("20", "60"), door.as_str()].concat());
    scene.relay.next(|event| event["event"] == "reloaded");
    scene.settles(&[RATE * 1.5; 2]);
    scene.shares(both, &[RATE * 1.5; 2], 2 * SHORT);

    scene.offer(&door);
    scene.relay.next(|event| event["event"] == "reloaded");
    scene.wait_unlimited();
    let got = watch(both, 10 * SHORT);
    assert!(got.rate() > 6.0 * RATE, "{got:?}");
    assert_eq!(scene.interface(), serde_json::Value::Null);
}

#[test]
fn a_mistake_leaves_the_shares_as_they_are() {
    let door = listener(8001, "cubic", "");
    let Some(mut scene) = Scene::new(&[SHARED, &door].concat()) else { return };
    let download = scene.download(8001);
    scene.settles(&[RATE]);
    for (wrong, said) in [("\"0bit/s\"", "64kbit/s"), ("\"900Gbit/s\"", "400Gbit/s"), ("20", "100Mbit/s")] {
        scene.offer(&[&SHARED.replace("\"20Mbit/s\"", wrong), door.as_str()].concat());
        let rejected = scene.relay.next(|event| event["event"] == "reload_rejected").to_string();
        assert!(rejected.contains("interface[1].rate") && rejected.contains(said), "{rejected}");
    }
    scene.settles(&[RATE]);
    scene.shares(&[&download], &[RATE], SHORT);
}

/// It may come later, as the interface of a dialled line does.
#[test]
fn an_interface_that_is_not_there_is_told_and_no_mistake() {
    let door = listener(8001, "cubic", "");
    let Some(mut scene) = Scene::new(&[&SHARED.replace("left", "ppp0"), door.as_str()].concat()) else { return };
    let warning = scene.relay.next(|event| event["event"] == "warning").to_string();
    assert!(warning.contains("no interface ppp0"), "{warning}");
    let download = scene.download(8001);
    // Nobody is held back meanwhile.
    let got = watch(&[&download], 4 * SHORT);
    scene.wait_unlimited();
    assert!(got.rate() > 3.0 * RATE, "{got:?}");
    drop(download);
    // It comes.
    scene.row["relay"].ip("link add ppp0 type veth peer name other\nlink set ppp0 up\nlink set other up\n");
    scene.offer(&[&SHARED.replace("left", "ppp0"), door.as_str()].concat());
    scene.relay.next(|event| event["event"] == "reloaded");
    scene.relay.signal("TERM");
    assert!(!scene.relay.rest().iter().any(|event| event["event"] == "warning"), "it is there now");
}
