//! One answer of `/metrics`, read as Prometheus does.

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::*;

pub struct Scrape(pub String);

impl Scrape {
    pub fn of(relay: &Relay) -> Self {
        let text = relay.ask("/metrics");
        assert!(text.ends_with("# EOF\n"), "{text}");
        Self(text)
    }

    /// Every line with a value, by what stands before it.
    pub fn lines(&self) -> BTreeMap<&str, f64> {
        let lines = self.0.lines().filter(|line| !line.starts_with('#'));
        let split = lines.map(|line| line.rsplit_once(' ').expect("a value"));
        split.map(|(series, value)| (series, value.parse().expect("a number"))).collect()
    }

    /// The names of all lines.
    pub fn names(&self) -> BTreeSet<&str> {
        self.lines().into_keys().map(|series| series.split('{').next().unwrap()).collect()
    }

    /// The sum of all lines of this name whose labels have all of these.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let lines = self.lines().into_iter().filter(|(series, _)| {
            let (found, rest) = series.split_once('{').unwrap_or((series, ""));
            found == name && labels.iter().all(|label| rest.contains(label))
        });
        lines.map(|(_, value)| value).sum()
    }
}

/// Waits until the sum of these is as `wanted`.
pub fn until(relay: &Relay, name: &str, labels: &[&str], wanted: impl Fn(f64) -> bool) -> f64 {
    eventually(&format!("{name} {labels:?}"), || Some(Scrape::of(relay).sum(name, labels)).filter(|sum| wanted(*sum)))
}

/// Whether two numbers are the same count.
pub fn is(value: f64, count: u32) -> bool {
    (value - f64::from(count)).abs() < 0.5
}
