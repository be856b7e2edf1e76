//! What the relay says of it.

use crate::harness::*;
use crate::scene::*;

#[test]
fn status_and_metrics_show_the_shares() {
    let text = [SHARED, &listener(8001, "bbr", ""), &listener(8002, "cubic", "")].concat();
    let Some(scene) = Scene::new(&text) else { return };
    let idle = scene.interface();
    assert_eq!((&idle["interface"], &idle["sending"]), (&"left".into(), &0.into()), "{idle}");
    assert!(idle["level_bits_per_second"].is_null() && idle["fairness"].is_null(), "{idle}");
    let downloads = [8001, 8002].map(|port| scene.download(port));
    let fair = eventually("figures of a whole second", || {
        let shown = scene.interface();
        // In its first moment each of them was alone, and who sends less for a moment leaves the rest to the other.
        let part = |key| shown[key].as_f64().map_or(0.0, |bits| bits / RATE);
        let settled = (0.8..1.02).contains(&part("sent_bits_per_second")) && part("level_bits_per_second") == 0.5;
        shown["fairness"].as_f64().filter(|jain| settled && *jain > 0.95).map(|_| shown)
    });
    assert_eq!((&fair["rate_bits_per_second"], &fair["sending"]), (&20_000_000.into(), &2.into()), "{fair}");
    let metrics = scene.relay.ask("/metrics");
    for name in
        ["rate_bits_per_second", "sections_sending", "level_bits_per_second", "sent_bits_per_second", "fairness_ratio"]
    {
        assert!(metrics.contains(&format!("ekiden_share_{name}{{interface=\"left\"}}")), "{name}: {metrics}");
    }
    let admin = format!("unix:{}", scene.relay.admin.display());
    let status = ekiden().args(["status", "--admin", &admin]).output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(status.contains("FAIRNESS") && status.contains("20.00 Mbit/s"), "{status}");
    drop(downloads);
    eventually("nobody who sends", || (scene.interface()["sending"] == 0).then_some(()));
}

/// Sessions that send now and then are no members, and one that is alone again is not held back.
#[test]
fn nothing_is_shared_where_nothing_is_configured() {
    let Some(scene) = Scene::new(&listener(8001, "cubic", "")) else { return };
    let download = scene.download(8001);
    let got = watch(&[&download], 20_000_000);
    scene.wait_unlimited();
    assert!(got.rate() > 3.0 * RATE, "{got:?}");
    assert!(scene.interface().is_null());
    assert!(!scene.relay.ask("/metrics").contains("ekiden_share_rate_bits_per_second{"));
}
