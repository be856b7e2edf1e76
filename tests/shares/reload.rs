//! Interfaces that change, appear and disappear during sessions, and their metrics.

use super::fixture::*;
use super::harness::*;

const SHORT: u64 = 5_000_000;

#[test]
fn reloaded_rate_applies_to_running_sessions() {
    let door = listener(8001, "cubic", "");
    let Some(mut fixture) = Fixture::new(&[SHARED, &door].concat()) else { return };
    let downloads = [8001, 8001].map(|port| fixture.download(port));
    let both = &downloads.each_ref();
    fixture.wait_for_shares(&[RATE / 2.0; 2]);
    fixture.assert_shares(both, &[RATE / 2.0; 2], SHORT);

    fixture.send_reload(&[&SHARED.replace("20", "60"), door.as_str()].concat());
    fixture.relay.next(|event| event["event"] == "reloaded");
    fixture.wait_for_shares(&[RATE * 1.5; 2]);
    fixture.assert_shares(both, &[RATE * 1.5; 2], 2 * SHORT);

    fixture.send_reload(&door);
    fixture.relay.next(|event| event["event"] == "reloaded");
    fixture.wait_unlimited();
    let got = measure(both, 10 * SHORT);
    assert!(got.rate() > 6.0 * RATE, "{got:?}");
    assert_eq!(fixture.interface(), serde_json::Value::Null);
}

#[test]
fn rejected_reload_keeps_the_shares() {
    let door = listener(8001, "cubic", "");
    let Some(mut fixture) = Fixture::new(&[SHARED, &door].concat()) else { return };
    let download = fixture.download(8001);
    fixture.wait_for_shares(&[RATE]);
    for (wrong, expected) in [("\"0bit/s\"", "64kbit/s"), ("\"900Gbit/s\"", "400Gbit/s"), ("20", "100Mbit/s")] {
        fixture.send_reload(&[&SHARED.replace("\"20Mbit/s\"", wrong), door.as_str()].concat());
        let rejected = fixture.relay.next(|event| event["event"] == "reload_rejected").to_string();
        assert!(rejected.contains("interface[1].rate") && rejected.contains(expected), "{rejected}");
    }
    fixture.wait_for_shares(&[RATE]);
    fixture.assert_shares(&[&download], &[RATE], SHORT);
}

/// The interface may appear later, like the interface of a PPP connection.
#[test]
fn missing_interface_is_a_warning_and_no_error() {
    let door = listener(8001, "cubic", "");
    let Some(mut fixture) = Fixture::new(&[&SHARED.replace("left", "ppp0"), door.as_str()].concat()) else { return };
    let warning = fixture.relay.next(|event| event["event"] == "warning").to_string();
    assert!(warning.contains("interface ppp0 does not exist"), "{warning}");
    let download = fixture.download(8001);
    // Until the interface appears, downloads are not limited.
    let got = measure(&[&download], 4 * SHORT);
    fixture.wait_unlimited();
    assert!(got.rate() > 3.0 * RATE, "{got:?}");
    drop(download);
    // The interface appears.
    fixture.row["relay"].ip("link add ppp0 type veth peer name other\nlink set ppp0 up\nlink set other up\n");
    fixture.send_reload(&[&SHARED.replace("left", "ppp0"), door.as_str()].concat());
    fixture.relay.next(|event| event["event"] == "reloaded");
    fixture.relay.signal("TERM");
    assert!(
        !fixture.relay.remaining_events().iter().any(|event| event["event"] == "warning"),
        "the interface exists now"
    );
}

#[test]
fn status_and_metrics_show_the_shares() {
    let text = [SHARED, &listener(8001, "bbr", ""), &listener(8002, "cubic", "")].concat();
    let Some(fixture) = Fixture::new(&text) else { return };
    let idle = fixture.interface();
    assert_eq!((&idle["interface"], &idle["sending"]), (&"left".into(), &0.into()), "{idle}");
    assert!(idle["level_bits_per_second"].is_null() && idle["fairness"].is_null(), "{idle}");
    let downloads = [8001, 8002].map(|port| fixture.download(port));
    let fair = eventually("the figures of a whole second", || {
        let shown = fixture.interface();
        // At first there is one section, and later a section may use the unused share of the other section.
        let part = |key| shown[key].as_f64().map_or(0.0, |bits| bits / RATE);
        let settled = (0.8..1.02).contains(&part("sent_bits_per_second")) && part("level_bits_per_second") == 0.5;
        shown["fairness"].as_f64().filter(|jain| settled && *jain > 0.95).map(|_| shown)
    });
    assert_eq!((&fair["rate_bits_per_second"], &fair["sending"]), (&20_000_000.into(), &2.into()), "{fair}");
    let metrics = fixture.relay.ask("/metrics");
    for name in
        ["rate_bits_per_second", "sections_sending", "level_bits_per_second", "sent_bits_per_second", "fairness_ratio"]
    {
        assert!(metrics.contains(&format!("ekiden_share_{name}{{interface=\"left\"}}")), "{name}: {metrics}");
    }
    let status = fixture.relay.status(&[]);
    assert!(status.contains("FAIRNESS") && status.contains("20.00 Mbit/s"), "{status}");
    drop(downloads);
    eventually("an interface without senders", || (fixture.interface()["sending"] == 0).then_some(()));
}

/// Without an `[[interface]]` table no section has a ceiling, and the status and the metrics have no shares.
#[test]
fn rates_are_not_limited_without_an_interface_table() {
    let Some(fixture) = Fixture::new(&listener(8001, "cubic", "")) else { return };
    let download = fixture.download(8001);
    let got = measure(&[&download], 20_000_000);
    fixture.wait_unlimited();
    assert!(got.rate() > 3.0 * RATE, "{got:?}");
    assert!(fixture.interface().is_null());
    assert!(!fixture.relay.ask("/metrics").contains("ekiden_share_rate_bits_per_second{"));
}
