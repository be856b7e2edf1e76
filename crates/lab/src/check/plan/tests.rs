use std::collections::BTreeMap;

use super::*;
use crate::topology::{Backend, Family, Host};
use ekiden_emulator::links::{EmulationMode, Link};

fn conditions(text: &str) -> Conditions {
    toml::from_str(text).unwrap()
}

fn names(forward: &str, reverse: &str, congestion: &str) -> String {
    let link =
        Link { ends: ["a".into(), "b".into()], mtu: 1500, forward: conditions(forward), reverse: conditions(reverse) };
    let host = Host { congestion: Some(congestion.into()), ..Host::default() };
    let lab = Lab {
        name: "lab".into(),
        seed: 1,
        mode: EmulationMode::Exact,
        backend: Backend::Packet,
        family: Family::Ipv4,
        modules: [].into(),
        hosts: BTreeMap::from([("a".into(), host.clone()), ("b".into(), host)]),
        links: BTreeMap::new(),
        events: Vec::new(),
    };
    let place = CheckedDirection { name: "wan", link: &link, forward: true };
    let name = |measure: &Measurement| format!("{measure:?}").split(['(', ' ']).next().unwrap_or_default().to_owned();
    measurements(&place, &lab).iter().map(name).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_condition_gets_its_measurements() {
    assert_eq!(names("", "", "reno"), "");
    assert_eq!(names("delay = '25ms'", "delay = '25ms'", "reno"), "Delay Ping");
    assert_eq!(names("rate = '10Mbit/s'", "", "reno"), "Loaded Rate Spacing");
    assert_eq!(names("jitter = { distribution = 'uniform', scale = '2ms' }", "", "reno"), "Jitter");
    assert_eq!(names("loss = { model = 'bernoulli', p = 0.1 }", "", "reno"), "Chance");
    let codel = "rate = '10Mbit/s'\nqueue = { kind = 'codel', limit = '100pkt' }";
    assert_eq!(names(codel, "", "reno"), "Loaded Spacing Queue");
    assert_eq!(names(&codel.replace("codel", "tail-drop"), "", "reno"), "Loaded Rate Spacing Queue");
    assert_eq!(names("delay = '25ms'\ndown = true", "", "reno"), "", "nothing passes");
}

#[test]
fn transfer_is_measured_only_where_theory_applies() {
    let periodic = "delay = '25ms'\nloss = { model = 'pattern', every = 500, lost = [60] }";
    assert_eq!(names(periodic, "delay = '25ms'", "cubic"), "Transfer Delay Chance");
    assert_eq!(names(periodic, "delay = '25ms'", "bbr"), "Delay Chance");
    assert_eq!(names(periodic, periodic, "cubic"), "Delay Chance");
    assert_eq!(
        names(&format!("rate = '1Mbit/s'\n{periodic}"), "delay = '25ms'", "cubic"),
        "Delay Loaded Rate Spacing Chance"
    );
}

fn offered(shots: &[ProbeSend]) -> f64 {
    let gap = (shots[1].at - shots[0].at) as f64;
    f64::from(shots[0].bytes) * f64::from(shots[0].packets) * 8e9 / gap
}

#[test]
fn load_probes_offer_the_given_percentage_of_any_rate() {
    for rate in ["64kbit/s", "1Mbit/s", "10Mbit/s", "1Gbit/s"] {
        let conditions = conditions(&format!("rate = '{rate}'"));
        let wanted = conditions.rate.unwrap().bits_per_second() as f64 * 1.2;
        let shots = load_probes(&conditions, 1500, 120, SECOND);
        assert!((offered(&shots) / wanted - 1.0).abs() < 0.001, "{rate}: {} for {wanted}", offered(&shots));
        let packets: usize = shots.iter().map(|shot| usize::from(shot.packets)).sum();
        assert!(packets >= 500 && shots.len() <= 5000, "{rate}: {packets} packets by {} calls", shots.len());
    }
}

#[test]
fn spacing_bursts_fit_the_queue_and_loss_probes_underload_the_line() {
    let narrow = conditions("rate = '1Mbit/s'\nqueue = { kind = 'tail-drop', limit = '4pkt' }");
    let budget = TrafficBudget::for_size(CheckSize::Full);
    assert_eq!(spacing_probes(&narrow, 1500, &budget)[0].packets, 4);
    let shots = random_event_probes(&narrow, 0.01, &budget);
    assert_eq!(shots[0].packets, 2);
    assert!(offered(&shots) < 0.6e6, "{}", offered(&shots));
    assert_eq!(random_event_probes(&Conditions::default(), 0.01, &budget).len(), 160_000 / 30 + 1);
}

#[test]
fn rarest_event_has_the_lowest_nonzero_probability() {
    let p = |text: &str| rarest_event_probability(&conditions(text));
    assert_eq!(p("loss = { model = 'bernoulli', p = 0.1 }\nduplicate = { p = 0.02 }"), Some(0.02));
    assert_eq!(p("loss = { model = 'gilbert-elliott', to_bad = 0.01, to_good = 0.03 }"), Some(0.25));
    assert_eq!((p("loss = { model = 'bernoulli', p = 0.0 }"), p("delay = '1ms'")), (None, None));
}

#[test]
fn acceptance_lab_covers_every_measurement() {
    let table = include_str!("../../../labs/acceptance.toml").parse().unwrap();
    let lab = crate::topology::file::parse_lab(table).unwrap();
    let places =
        lab.links.iter().flat_map(|(name, link)| [true, false].map(|forward| CheckedDirection { name, link, forward }));
    let planned: Vec<Measurement> = places.flat_map(|place| measurements(&place, &lab)).collect();
    let count = |wanted: fn(&Measurement) -> bool| planned.iter().filter(|measure| wanted(measure)).count();
    let counts = [
        count(|m| matches!(m, Measurement::Ping)),
        count(|m| matches!(m, Measurement::Rate)),
        count(|m| matches!(m, Measurement::Loaded)),
        count(|m| matches!(m, Measurement::Spacing)),
        count(|m| matches!(m, Measurement::Jitter)),
        count(|m| matches!(m, Measurement::Queue)),
        count(|m| matches!(m, Measurement::Transfer(PeriodicLoss { model: ThroughputModel::Reno, .. }))),
        count(|m| matches!(m, Measurement::Transfer(PeriodicLoss { model: ThroughputModel::Cubic, .. }))),
    ];
    assert_eq!(counts, [1, 2, 9, 9, 3, 9, 3, 1]);
    assert_eq!(count(|m| matches!(m, Measurement::Chance)), 8);
}
