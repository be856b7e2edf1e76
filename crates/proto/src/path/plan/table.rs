//! A plan as a table of 80 columns.

use std::fmt::Write;

use super::verdict::{pair_verdict, path_name, placement_verdict};
use super::{Placement, Plan, PlanInput, PlannedPath, RttSource, TrafficPaths};
use crate::quantity::{compact_size, factor, megabits, milliseconds};

/// Width of the table, in columns.
const COLUMNS: usize = 80;

/// Width of a path's name, in columns.
const NAME: usize = 24;

/// Number of placements to show.
const PLACEMENTS: usize = 5;

/// The whole plan, with at most `max_paths` paths for each pair.
#[must_use]
pub fn table(network: &PlanInput, plan: &Plan, max_paths: usize) -> String {
    let mut text = wrap(&summary(network), "");
    for pair in &plan.pairs {
        text += "\n";
        text += &paths(network, pair, max_paths);
        text += &wrap(&pair_verdict(network, pair), "  ");
    }
    text += "\n";
    text += &placements(network, "one relay more", &plan.single_placements);
    text += &placements(network, "two relays more", &plan.double_placements);
    text + &wrap(&placement_verdict(network, plan), "")
}

/// The input of the plan.
fn summary(network: &PlanInput) -> String {
    let count = |fits: fn(&super::Roles) -> bool| network.sites.iter().filter(|site| fits(&site.roles)).count();
    let (relays, places) = (count(|roles| roles.relay), count(|roles| roles.possible && !roles.relay));
    let origin = |origin| network.matrix.count(origin);
    let mut text = format!("{} sites, {relays} of them with a relay, {places} possible (+)", network.sites.len());
    let _ = write!(text, ". Round trips: {} given, {} measured", origin(RttSource::Given), origin(RttSource::Measured));
    let estimated = origin(RttSource::Estimated);
    if estimated > 0 {
        let distance_model = network.distance_model;
        let basis = match distance_model.sample_count {
            0 => String::new(),
            count => format!(", the median of {count} that are known"),
        };
        let _ = write!(
            text,
            ", {estimated} estimated (~) from positions: light in fibre along the great circle, times {}{basis}",
            factor(distance_model.inflation)
        );
    }
    let pair_count = network.sites.len() * network.sites.len().saturating_sub(1) / 2;
    let unknown = pair_count - network.matrix.entries().count();
    if unknown > 0 {
        let _ = write!(text, ", {unknown} unknown: paths by these sections are left out");
    }
    text + "."
}

fn paths(network: &PlanInput, pair: &TrafficPaths, max_paths: usize) -> String {
    let traffic = network.traffic[pair.traffic];
    let ends = format!("{} -> {}", network.name(traffic.client), network.name(traffic.server));
    let weight = if network.traffic.len() > 1 { format!(" (weight {})", traffic.weight) } else { String::new() };
    let mut text = format!("{ends}{weight}: how many times as fast as direct, by size\n");
    let sizes: String = network.sizes.iter().map(|bytes| format!("{:>6}", compact_size(*bytes))).collect();
    let _ = writeln!(text, "  {:<NAME$}{:>8}{:>8}{sizes}", "path", "RTT ms", "Mbit/s");
    let shown = shown_paths(pair, max_paths);
    for path in &shown {
        text += &row(network, pair, path);
    }
    let hidden = pair.paths.len() - shown.len();
    if hidden > 0 {
        let _ = writeln!(text, "  (and {hidden} that add less)");
    }
    text
}

/// The most useful paths, and direct.
fn shown_paths(pair: &TrafficPaths, max_paths: usize) -> Vec<&PlannedPath> {
    let mut shown: Vec<&PlannedPath> = pair.paths.iter().take(max_paths.max(1)).collect();
    if !shown.iter().any(|path| path.is_direct()) {
        shown.pop();
        shown.push(pair.direct());
    }
    shown
}

fn row(network: &PlanInput, pair: &TrafficPaths, path: &PlannedPath) -> String {
    let name = path_name(network, &path.relays);
    let mut text = format!("  {name:<NAME$}");
    if name.chars().count() > NAME {
        let _ = write!(text, "\n  {:<NAME$}", "");
    }
    let rtt = format!("{}{}", if is_estimated(network, pair, path) { "~" } else { "" }, milliseconds(path.rtt));
    let _ = write!(text, "{rtt:>8}{:>8}", megabits(path.rate));
    for gain in &path.gains {
        let _ = write!(text, "{:>6}", factor(*gain));
    }
    text + "\n"
}

/// Whether the round trip of a section of the path is only estimated.
fn is_estimated(network: &PlanInput, pair: &TrafficPaths, path: &PlannedPath) -> bool {
    let stops = super::ranking::stops(network, pair.traffic, &path.relays);
    let origin = |ends: &[usize]| network.matrix.get(ends[0], ends[1]).map(|entry| entry.source);
    stops.windows(2).any(|ends| origin(ends) == Some(RttSource::Estimated))
}

fn placements(network: &PlanInput, title: &str, placements: &[Placement]) -> String {
    if placements.is_empty() {
        return String::new();
    }
    let mut text = format!("  {title:<NAME$}{:>8}   gain by traffic\n", "gain");
    for placement in placements.iter().take(PLACEMENTS) {
        let names: Vec<&str> = placement.sites.iter().map(|place| network.name(*place)).collect();
        let names = names.join(", ");
        let line = format!("  {names:<NAME$}{:>8}   ", factor(placement.gain));
        let margin = " ".repeat(2 + NAME + 8 + 3);
        let gains = wrap(&gains_by_traffic(network, placement), &margin);
        text += &line;
        text += gains.get(margin.len().min(line.chars().count())..).unwrap_or_default();
    }
    text + "\n"
}

fn gains_by_traffic(network: &PlanInput, placement: &Placement) -> String {
    let mut gains: Vec<_> =
        placement.gains.iter().zip(&network.traffic).filter(|(gain, _)| gain.gain >= 1.01).collect();
    gains.sort_by(|one, other| other.0.gain.total_cmp(&one.0.gain));
    let texts = gains.iter().map(|(gain, traffic)| {
        format!("{}->{}\u{a0}{}", network.name(traffic.client), network.name(traffic.server), factor(gain.gain))
    });
    let entries: Vec<String> = texts.collect();
    if entries.is_empty() { "none".to_owned() } else { entries.join(", ") }
}

/// Wraps text to lines that begin with `margin`.
#[must_use]
pub fn wrap(text: &str, margin: &str) -> String {
    let (mut lines, mut line) = (String::new(), margin.to_owned());
    for word in text.split(' ') {
        let has_words = line.len() > margin.len();
        if has_words && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines += line.trim_end();
            lines += "\n";
            margin.clone_into(&mut line);
        } else if has_words {
            line += " ";
        }
        line += word;
    }
    (lines + line.trim_end() + "\n").replace('\u{a0}', " ")
}
