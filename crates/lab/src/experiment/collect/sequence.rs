//! Plots of sequence numbers over time: the connection with the most payload in one direction of a link, reduced to a
//! number of points that can be drawn.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::packets::{DirectionLog, PacketLogEntry};
use ekiden_emulator::Nanos;
use ekiden_emulator::records::PacketOutcome;

/// Sequence numbers over time on one link, of the connection with the most payload, in the direction of the data. Times
/// are in seconds since the first packet of the transfers, sequence numbers in bytes since the first byte of the
/// connection.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SequencePlot {
    /// The name of the link.
    pub link: String,
    /// The host that sends in this direction.
    pub from: String,
    /// The host that receives in this direction.
    pub to: String,
    /// Number of packets with payload.
    pub packets: u64,
    /// Number of retransmitted packets.
    pub sent_again: u64,
    /// Number of packets that the link dropped.
    pub dropped: u64,
    /// Pairs of a time and the highest sequence number sent by then.
    pub line: Vec<(f64, u64)>,
    /// Times and sequence numbers of retransmitted packets.
    pub again_at: Vec<(f64, u64)>,
    /// Times and sequence numbers of dropped packets.
    pub dropped_at: Vec<(f64, u64)>,
    /// Whether there were more packets than a log can hold, so that the plot ends early.
    #[serde(default)]
    pub is_cut: bool,
}

/// Number of time slots of a plot; the first and the last packet of each slot are kept.
const TIME_SLOTS: u64 = 400;
/// Length of the pause after which a connection that has sent nearly all its data counts as ended, in nanoseconds.
const IDLE_END: Nanos = 200_000_000;
/// Maximum number of marks of each kind; more are thinned out evenly.
const MAX_MARKS: usize = 200;

/// Returns the plot of the connection with the most payload, with times relative to `zero`.
#[must_use]
pub fn sequence_plot(direction: &DirectionLog, zero: Nanos) -> SequencePlot {
    let mut lines = largest_connection(&direction.entries);
    lines.truncate(transfer_end(&lines));
    let retransmitted: Vec<&PacketLogEntry> = lines.iter().copied().filter(|line| line.is_retransmission).collect();
    let dropped: Vec<&PacketLogEntry> =
        lines.iter().copied().filter(|line| matches!(line.outcome, PacketOutcome::Dropped(..))).collect();
    SequencePlot {
        link: direction.link.clone(),
        from: direction.from.clone(),
        to: direction.to.clone(),
        packets: lines.len() as u64,
        sent_again: retransmitted.len() as u64,
        dropped: dropped.len() as u64,
        line: highest_offsets(&lines, zero),
        again_at: sample_marks(&retransmitted, zero),
        dropped_at: sample_marks(&dropped, zero),
        is_cut: direction.truncated,
    }
}

/// Returns the packets with payload of the connection with the most payload.
fn largest_connection(lines: &[PacketLogEntry]) -> Vec<&PacketLogEntry> {
    let mut carried = HashMap::new();
    for tcp in lines.iter().filter_map(|line| line.tcp) {
        *carried.entry((tcp.source, tcp.target)).or_insert(0) += u64::from(tcp.length);
    }
    // Of connections with equal payload, the addresses decide, so that the same log always gives the same plot.
    let most = carried.into_iter().max_by_key(|(ends, bytes)| (*bytes, *ends)).map(|(ends, _)| ends);
    let is_of =
        |line: &&PacketLogEntry| line.tcp.is_some_and(|tcp| tcp.length > 0 && Some((tcp.source, tcp.target)) == most);
    lines.iter().filter(is_of).collect()
}

/// Returns the number of entries up to the end of the transfer: nearly all data is sent, a pause follows, and no
/// retransmission comes later. Control traffic of a tunnel after the transfer (SoftEther sends some seconds later)
/// would otherwise fill most of the plot.
fn transfer_end(lines: &[&PacketLogEntry]) -> usize {
    let reached = |line: &PacketLogEntry| line.offset + line.tcp.map_or(0, |tcp| i64::from(tcp.length));
    let nearly = lines.iter().map(|line| reached(line)).max().map_or(0, |all| all - all / 1000);
    let is_over = |two: &[&PacketLogEntry]| reached(two[0]) >= nearly && two[1].at - two[0].at > IDLE_END;
    let last = lines.windows(2).position(is_over).map_or(lines.len(), |index| index + 1);
    let again = lines.iter().rposition(|line| line.is_retransmission).map_or(0, |index| index + 1);
    last.max(again)
}

/// Returns the highest offset over time. Pauses remain visible, because the packets before and after a pause are both
/// kept.
fn highest_offsets(lines: &[&PacketLogEntry], zero: Nanos) -> Vec<(f64, u64)> {
    let last = lines.last().map_or(0, |line| line.at.saturating_sub(zero));
    let slot_of = |at: Nanos| at.saturating_sub(zero) / (last / TIME_SLOTS).max(1);
    let mut points: Vec<(f64, u64)> = Vec::new();
    let (mut end, mut slots) = (0, Vec::new());
    for line in lines {
        end = end.max(line.offset + line.tcp.map_or(0, |tcp| i64::from(tcp.length)));
        let (slot, point) = (slot_of(line.at), (seconds(line.at, zero), end.cast_unsigned()));
        // Only the first and the last point of each slot are kept.
        if let [.., first, second] = slots[..]
            && first == slot
            && second == slot
        {
            points.pop();
            slots.pop();
        }
        points.push(point);
        slots.push(slot);
    }
    points
}

fn sample_marks(lines: &[&PacketLogEntry], zero: Nanos) -> Vec<(f64, u64)> {
    let step = lines.len().div_ceil(MAX_MARKS).max(1);
    lines.iter().step_by(step).map(|line| (seconds(line.at, zero), line.offset.max(0).cast_unsigned())).collect()
}

#[allow(clippy::cast_precision_loss, reason = "a time below 2^53 ns")]
fn seconds(at: Nanos, zero: Nanos) -> f64 {
    at.saturating_sub(zero) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::collect::packets::tests::{direction_log, log_entry};

    #[test]
    fn plot_has_drops_and_retransmissions_of_the_largest_connection() {
        // 10,000 packets at intervals of 100 µs with a pause of 1 s in the middle, and a second, smaller connection.
        let at = |number: u64| 100_000 * number + if number >= 5000 { 1_000_000_000 } else { 0 };
        let mut all: Vec<PacketLogEntry> =
            (0..10_000).map(|number| log_entry(1, at(number), 1000 * number as i64, 1000)).collect();
        all.extend((0..100).map(|number| log_entry(2, at(number), 1000 * number as i64, 1000)));
        all[5000].is_retransmission = true;
        all[5000].offset = 0;
        for dropped in &mut all[100..1100] {
            dropped.outcome = PacketOutcome::Dropped(ekiden_emulator::ledger::DropCause::WireLoss, 0);
        }
        all.sort_by_key(|line| line.at);
        let plot = sequence_plot(&direction_log(all), 0);
        assert_eq!((plot.packets, plot.sent_again, plot.dropped), (10_000, 1, 1000));
        assert_eq!(plot.line.last(), Some(&(1.9999, 10_000_000)));
        // Half of the parts of the plot have no point, because of the pause.
        assert!((399..=402).contains(&plot.line.len()), "{}", plot.line.len());
        assert!(plot.line.windows(2).all(|two| two[0].0 <= two[1].0 && two[0].1 <= two[1].1), "the line never falls");
        let pause = plot.line.windows(2).find(|two| two[1].0 - two[0].0 > 0.9).unwrap();
        assert_eq!((pause[0].1, pause[1].1), (5_000_000, 5_000_000), "the pause has no new data");
        assert_eq!(plot.again_at, [(1.5, 0)]);
        assert_eq!((plot.dropped_at.len(), plot.dropped_at[0]), (200, (0.01, 100_000)));
    }

    #[test]
    fn plot_ends_with_the_transfer_or_the_last_retransmission() {
        let mut all: Vec<PacketLogEntry> =
            (0..1000).map(|number| log_entry(1, 1000 * number, 1000 * number as i64, 1000)).collect();
        all.push(log_entry(1, 4_000_000_000, 1_000_000, 100));
        assert_eq!(
            sequence_plot(&direction_log(all.clone()), 0).line.last(),
            Some(&(0.000_999, 1_000_000)),
            "the late packet is control traffic after the transfer"
        );
        all.insert(1000, PacketLogEntry { is_retransmission: true, ..log_entry(1, 3_000_000_000, 999_000, 1000) });
        let late = sequence_plot(&direction_log(all), 0);
        assert_eq!((late.line.last(), late.sent_again), (Some(&(3.0, 1_000_000)), 1));
    }

    #[test]
    fn plot_without_packets_is_empty() {
        let empty = sequence_plot(&direction_log(Vec::new()), 7);
        assert_eq!((empty.packets, empty.line.len(), empty.again_at.len()), (0, 0, 0));
    }
}
