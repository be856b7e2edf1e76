//! Checks the rate of a line: over seconds, over any ten milliseconds, and from packet to packet.

use super::expectation::transmission_time;
use super::probe::ProbeSeries;
use super::row::Finding;
use crate::stats;
use ekiden_emulator::Nanos;
use ekiden_emulator::conditions::{Conditions, Loss, LossPosition};

/// Window of the short-term rate, in nanoseconds.
const SHORT_TERM_WINDOW: Nanos = 10_000_000;

/// The parameters of a line to be measured.
#[derive(Debug, Clone, Copy)]
pub struct LineExpectation {
    /// The configured rate, in bits per second.
    pub rate: u64,
    /// Bytes that the line counts in addition to the IP packet.
    pub overhead: u32,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// The probability that a packet is lost after the line.
    pub loss_probability: f64,
    /// Maximum time, in nanoseconds, for which packets may be held back, so that they arrive together.
    pub quantum: Nanos,
}

/// Returns the probability that a packet is lost after the line; `None` if losses come in bursts.
pub fn independent_loss(conditions: &Conditions) -> Option<f64> {
    match &conditions.loss {
        Some(Loss::Bernoulli { p, at: LossPosition::Wire }) => Some(*p),
        Some(Loss::Pattern { every, lost, at: LossPosition::Wire }) => Some(lost.len() as f64 / *every as f64),
        Some(Loss::GilbertElliott { at: LossPosition::Wire, .. }) => None,
        _ => Some(0.0),
    }
}

/// Checks the rate of IP packets over the whole overload, without its first tenth. The tolerance is 0.5 % of the
/// expected rate, plus the variation by random loss.
pub fn check_long_term(series: &ProbeSeries, line: LineExpectation) -> Finding {
    let start = series.received.first().map_or(0, |probe| probe.at);
    let end = series.received.last().map_or(0, |probe| probe.at);
    let samples: Vec<(Nanos, u64)> = series
        .received
        .iter()
        .filter(|probe| probe.at >= start + (end - start) / 10)
        .map(|probe| (probe.at, u64::from(series.sent[probe.number].bytes)))
        .collect();
    let span = samples.last().map_or(0, |last| last.0 - samples[0].0);
    let bytes: u64 = samples.iter().skip(1).map(|(_, bytes)| bytes).sum();
    let packets = samples.len().saturating_sub(1).max(1) as f64;
    let size = bytes as f64 / packets;
    let rate = bytes as f64 * 8e9 / span.max(1) as f64;
    let expected = line.rate as f64 * size / (size + f64::from(line.overhead)) * (1.0 - line.loss_probability);
    let error = (rate / expected - 1.0) * 100.0;
    let chance = 3.29 * (line.loss_probability / packets).sqrt() * 100.0;
    let limit = 0.5 + chance;
    let offered = offered_rate(series);
    Finding {
        wanted: format!("IP bytes out at 120 % load: {} ± {limit:.2} %", format_rate(expected)),
        measured: format!(
            "{} ({error:+.2} %) of {} offered{}",
            format_rate(rate),
            format_rate(offered),
            overflow_note(series)
        ),
        pass: error.abs() <= limit && offered >= 1.1 * line.rate as f64 && series.overflow == 0,
    }
}

/// Returns the offered rate, in bits per second.
fn offered_rate(series: &ProbeSeries) -> f64 {
    let (Some(first), Some(last)) = (series.sent.first(), series.sent.last()) else { return 0.0 };
    let bytes: u64 = series.sent.iter().map(|sent| u64::from(sent.bytes)).sum();
    bytes as f64 * 8e9 / (last.at - first.at).max(1) as f64
}

/// Returns a note with the number of probes that the receiving socket dropped; empty if there are none.
pub fn overflow_note(series: &ProbeSeries) -> String {
    if series.overflow == 0 {
        return String::new();
    }
    format!("; the measuring socket dropped {} packets", series.overflow)
}

/// Checks the maximum number of bytes that arrive in any ten milliseconds. The limit is the rate, plus one packet
/// already in flight, plus packets held back for at most `quantum`.
pub fn check_short_term(series: &ProbeSeries, line: LineExpectation) -> Finding {
    let bytes = |number: usize| u64::from(series.sent[number].bytes + line.overhead);
    let (mut most, mut inside, mut oldest) = (0, 0, 0);
    for probe in &series.received {
        inside += bytes(probe.number);
        while probe.at - series.received[oldest].at >= SHORT_TERM_WINDOW {
            inside -= bytes(series.received[oldest].number);
            oldest += 1;
        }
        most = most.max(inside);
    }
    let allowed = line.rate * (SHORT_TERM_WINDOW + line.quantum) / 8_000_000_000 + u64::from(line.mtu + line.overhead);
    Finding {
        wanted: format!("any 10 ms: ≤ {allowed} bytes, as the line counts"),
        measured: format!("{most} bytes"),
        pass: most <= allowed && most > 0,
    }
}

/// Checks the spacing of full packets sent back to back, by the median of the errors.
pub fn check_serialisation(series: &ProbeSeries, line: LineExpectation) -> Finding {
    let packet_time = transmission_time(line.mtu + line.overhead, line.rate);
    let arrivals = series.arrival_times();
    let burst_mates = arrivals.windows(2).zip(series.sent.windows(2)).filter(|(_, sent)| sent[1].segment.0 > 0);
    let spacings = burst_mates.filter_map(|(pair, _)| Some(pair[1]?.abs_diff(pair[0]?)));
    let errors: Vec<f64> = spacings.map(|spacing| spacing.abs_diff(packet_time) as f64 / 1e3).collect();
    let median = stats::median(&errors);
    let limit = (packet_time as f64 / 1e4).max(20.0);
    Finding {
        wanted: format!("spacing back to back {:.1} µs: median error ≤ {limit:.1} µs", packet_time as f64 / 1e3),
        measured: format!("{median:.1} µs of {} spacings", errors.len()),
        pass: median <= limit && errors.len() >= 20,
    }
}

/// Formats a rate in Mbit/s, with three decimals.
pub fn format_rate(bits_per_second: f64) -> String {
    format!("{:.3} Mbit/s", bits_per_second / 1e6)
}

#[cfg(test)]
mod tests {
    use super::super::probe::SentProbe;
    use super::*;

    const LINE_EXPECTATION: LineExpectation =
        LineExpectation { rate: 10_000_000, overhead: 0, mtu: 1250, loss_probability: 0.0, quantum: 0 };

    /// Packets of 1250 bytes, sent at 120 % of the rate of the line, at which a packet takes 1 ms. Packet `i` arrives
    /// at `at(i)`.
    fn series(count: u64, at: impl Fn(u64) -> Nanos) -> ProbeSeries {
        let sent = |i: u64| SentProbe { segment: ((i % 10) as u16, 10), ..SentProbe::for_test(i * 833_333, 1250) };
        ProbeSeries::for_test((0..count).map(sent), (0..count).map(|i| (i as usize, at(i))))
    }

    #[test]
    fn long_term_rate_tolerance_is_half_a_percent() {
        assert!(check_long_term(&series(10_000, |i| i * 1_000_000), LINE_EXPECTATION).pass);
        assert!(!check_long_term(&series(10_000, |i| i * 994_000), LINE_EXPECTATION).pass);
        assert!(!check_long_term(&series(10_000, |i| i * 1_006_000), LINE_EXPECTATION).pass);
        assert!(!check_long_term(&ProbeSeries::default(), LINE_EXPECTATION).pass);
        let lossy = ProbeSeries { overflow: 1, ..series(10_000, |i| i * 1_000_000) };
        assert!(!check_long_term(&lossy, LINE_EXPECTATION).pass, "the losses of the socket are unknown");
    }

    #[test]
    fn overhead_lowers_the_expected_rate() {
        let counted = LineExpectation { overhead: 38, ..LINE_EXPECTATION };
        assert!(check_long_term(&series(10_000, |i| i * 1_030_400), counted).pass);
        assert!(!check_long_term(&series(10_000, |i| i * 1_000_000), counted).pass);
    }

    #[test]
    fn loss_behind_the_line_lowers_the_expected_rate() {
        let lossy = LineExpectation { loss_probability: 0.02, ..LINE_EXPECTATION };
        assert!(check_long_term(&series(10_000, |i| i * 1_020_408), lossy).pass);
        assert!(!check_long_term(&series(10_000, |i| i * 1_000_000), lossy).pass);
    }

    #[test]
    fn burst_above_the_quantum_fails_the_short_term_rate() {
        assert!(check_short_term(&series(1000, |i| i * 1_000_000), LINE_EXPECTATION).pass);
        // The limit permits one early packet, the packet already in flight. Two exceed it.
        let early = |i: u64| if i == 500 || i == 501 { 499_000_000 } else { i * 1_000_000 };
        assert!(!check_short_term(&series(1000, early), LINE_EXPECTATION).pass);
        assert!(
            check_short_term(&series(1000, early), LineExpectation { quantum: 1_000_000, ..LINE_EXPECTATION }).pass
        );
        assert!(!check_short_term(&ProbeSeries::default(), LINE_EXPECTATION).pass);
    }

    #[test]
    fn spacing_within_a_tenth_passes() {
        assert!(check_serialisation(&series(100, |i| i * 1_050_000), LINE_EXPECTATION).pass);
        assert!(!check_serialisation(&series(100, |i| i * 1_110_000), LINE_EXPECTATION).pass);
        assert!(
            !check_serialisation(&series(100, |i| i / 10 * 10_000_000), LINE_EXPECTATION).pass,
            "all ten packets at once"
        );
        assert!(!check_serialisation(&series(10, |i| i * 1_000_000), LINE_EXPECTATION).pass, "too few packets");
    }
}
