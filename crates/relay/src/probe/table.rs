//! A probe's findings as a table of 80 columns.

use std::fmt::Write;

use ekiden_proto::path::plan::table::wrap;
use ekiden_proto::quantity::{compact_size, factor, megabits, milliseconds};

use super::findings::{CandidateFindings, MIN_SEGMENTS, ProbeReport, SIZES};
use super::verdict;

/// Width of a candidate's name.
const NAME_WIDTH: usize = 20;

/// Returns the table of all results so far.
#[must_use]
pub fn table(report: &ProbeReport) -> String {
    let downloads = report.target.url.is_some();
    let wait = if downloads { "1st byte" } else { "set-up" };
    let sizes: String = SIZES.iter().map(|bytes| format!("{:>6}", compact_size(*bytes))).collect();
    let mut text = format!("  {:<NAME_WIDTH$}{:>8}{wait:>9}{:>8}{:>8}{sizes}\n", "path", "RTT ms", "loss", "Mbit/s");
    let direct = report.findings.iter().find(|findings| findings.is_direct());
    for findings in &report.findings {
        text += &row(findings, direct, downloads);
    }
    text += &visits_table(report);
    for note in notes(report) {
        text += &wrap(&note, "  ");
    }
    text + &wrap(&verdict::verdict_text(report), "")
}

fn row(findings: &CandidateFindings, direct: Option<&CandidateFindings>, downloads: bool) -> String {
    let mut text = name_cell(findings);
    let margin = " ".repeat(2 + NAME_WIDTH);
    if findings.is_reached() {
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let wait = if downloads { findings.first_byte() } else { findings.setup() };
        let loss = findings
            .loss()
            .filter(|loss| loss.segments >= MIN_SEGMENTS)
            .map(|loss| format!("{:.1}%", loss.ratio() * 100.0));
        let rate = findings.rate().map(megabits);
        let _ = write!(text, "{:>8}", or_dash(findings.rtt().map(milliseconds)));
        let _ = write!(text, "{:>9}{:>8}", or_dash(wait.map(milliseconds)), or_dash(loss));
        let _ = write!(text, "{:>8}", or_dash(rate));
        let gains = direct.map(|direct| verdict::gains(direct, findings)).unwrap_or_default();
        gains.into_iter().for_each(|gain| text += &format!("{:>6}", or_dash(gain.map(factor))));
        text = text.trim_end().to_owned() + "\n";
    }
    if let Some(failure) = &findings.failure {
        let message =
            if findings.is_reached() { format!("{} failed: {failure}", findings.failures) } else { failure.clone() };
        let message = wrap(&message, &margin);
        text += if findings.is_reached() { &message } else { message.trim_start() };
    } else if !findings.is_reached() {
        text += "not tried yet\n";
    }
    text
}

/// Returns the cell with the name of a candidate, padded to the first column. A long name occupies a separate line.
fn name_cell(findings: &CandidateFindings) -> String {
    let name = findings.name();
    let mut text = format!("  {name:<NAME_WIDTH$}");
    if name.chars().count() > NAME_WIDTH - 1 {
        let _ = write!(text, "\n  {:<NAME_WIDTH$}", "");
    }
    text
}

/// Returns the table of the times of two visits over each path; empty if there are none.
fn visits_table(report: &ProbeReport) -> String {
    let visits: Vec<_> = report.findings.iter().filter_map(|findings| Some((findings, findings.visits()?))).collect();
    let Some(bytes) = visits.iter().map(|(_, visits)| visits.bytes).max() else { return String::new() };
    let title = format!("visits of {}", compact_size(bytes));
    let mut text = format!("  {title:<NAME_WIDTH$}{:>8}{:>9}\n", "1st ms", "2nd ms");
    for (findings, visits) in visits {
        let [first, second] = [visits.first, visits.second].map(milliseconds);
        let remark = if findings.is_direct() || visits.is_reuse { "" } else { "  no reuse" };
        let _ = writeln!(text, "{}{first:>8}{second:>9}{remark}", name_cell(findings));
    }
    text
}

/// Returns notes that explain the figures.
fn notes(report: &ProbeReport) -> Vec<String> {
    let mut notes = Vec::new();
    let reached: Vec<&CandidateFindings> = report.findings.iter().filter(|findings| findings.is_reached()).collect();
    if reached.is_empty() {
        return notes;
    }
    notes.push("The size columns show how many times as fast as direct an object of that size arrives.".to_owned());
    notes.extend(visit_notes(&reached));
    if reached.iter().any(|findings| findings.is_predicted()) {
        let sent: u64 = reached.iter().filter_map(|findings| findings.loss()).map(|loss| loss.segments).sum();
        notes.push(format!(
            "Mbit/s, sizes and visits are predicted from round trips, buffers and loss; {sent} segments are few to \
             measure loss. Name the URL of a large file to measure instead."
        ));
    } else if reached.iter().flat_map(|findings| findings.completion_times()).flatten().any(|time| time.is_extrapolated)
    {
        notes.push("Downloads stopped earlier are extrapolated at the rate before the stop.".to_owned());
    }
    notes
}

/// Returns notes that explain the visits over paths with relays.
fn visit_notes(reached: &[&CandidateFindings]) -> Vec<String> {
    let relayed = || reached.iter().filter(|findings| !findings.is_direct()).filter_map(|findings| findings.visits());
    let mut notes = Vec::new();
    if relayed().any(|visits| visits.is_reuse) {
        notes.push(
            "Visits are downloads in a row, in ms to the last byte. For the second visit relays reuse their \
             connections, with the congestion windows of the first."
                .to_owned(),
        );
    }
    if relayed().any(|visits| !visits.is_reuse) {
        notes.push(
            "No reuse: the server sends whole files only, or a hop is not a relay of this version. The second visit \
             starts like the first."
                .to_owned(),
        );
    }
    notes
}
