//! The packet log: the emulator's records of the packets that a run sent over some links.
//!
//! A packet counts as *retransmitted* if it begins before the highest sequence number of its connection, because the
//! log has the packets of the link, not the state of the sender. After a link that reorders packets, some packets
//! therefore count as retransmitted although they are not.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;

use super::sequence::{self, SequencePlot};
use crate::experiment::spec::read::CellKey;
use crate::topology::Lab;
use crate::topology::RunningLab;
use ekiden_emulator::Nanos;
use ekiden_emulator::frame::TcpHeader;
use ekiden_emulator::records::{MAX_LOGGED_PACKETS, PacketOutcome, PacketRecord};

/// The packets that entered one direction of a link.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectionLog {
    /// The name of the link.
    pub link: String,
    /// The host that sends in this direction.
    pub from: String,
    /// The host that receives in this direction.
    pub to: String,
    /// The packets, in the order of arrival at the link.
    pub entries: Vec<PacketLogEntry>,
    /// Whether there were more packets than a log can hold.
    pub truncated: bool,
}

/// One packet of a log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PacketLogEntry {
    /// Arrival time at the link, since the start of the emulator.
    pub at: Nanos,
    /// Size in bytes, with the headers that the link counts.
    pub bytes: u32,
    /// TCP header; `None` for other packets.
    pub tcp: Option<TcpHeader>,
    /// Sequence number relative to the first packet of the connection in the log; 0 without TCP.
    pub offset: i64,
    /// Whether the packet repeats payload that its connection has sent before.
    pub is_retransmission: bool,
    /// Whether the link delivered, marked or dropped the packet.
    pub outcome: PacketOutcome,
}

/// Recorder of the packets of the transfers: holds the number of earlier packets in each direction.
#[derive(Debug)]
pub struct PacketLogRecorder(Vec<(String, [String; 2], usize)>);

impl PacketLogRecorder {
    /// Starts the log; earlier packets are excluded.
    ///
    /// # Errors
    /// A link does not exist, or the emulator has ended.
    pub fn start(running: &RunningLab, lab: &Lab, links: &[String]) -> anyhow::Result<Self> {
        let mut places = Vec::new();
        for name in links {
            let [a, b] = &lab.links.get(name).with_context(|| format!("there is no link {name}"))?.ends;
            for ends in [[a, b], [b, a]] {
                let before = running.records(name, ends[0])?.len();
                places.push((name.clone(), ends.map(Clone::clone), before));
            }
        }
        Ok(Self(places))
    }

    /// Returns the packets since the start.
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn finish(self, running: &RunningLab) -> anyhow::Result<Vec<DirectionLog>> {
        let all = self.0.into_iter().map(|(link, [from, to], before)| {
            let records = running.records(&link, &from)?;
            let lines = log_entries(records.get(before..).unwrap_or_default());
            Ok(DirectionLog { link, from, to, entries: lines, truncated: records.len() >= MAX_LOGGED_PACKETS })
        });
        all.collect()
    }
}

/// Converts the records to log entries. Offsets and retransmissions are determined from the earlier entries.
#[must_use]
pub fn log_entries(records: &[PacketRecord]) -> Vec<PacketLogEntry> {
    let mut connections: HashMap<(SocketAddr, SocketAddr), SequenceTracker> = HashMap::new();
    let line = |record: &PacketRecord| {
        let (mut offset, mut retransmitted) = (0, false);
        if let Some(tcp) = &record.tcp {
            let connection = connections.entry((tcp.source, tcp.target)).or_insert(SequenceTracker::new(tcp));
            (offset, retransmitted) = connection.on_segment(tcp);
        }
        let PacketRecord { packet, tcp, outcome, .. } = *record;
        PacketLogEntry { at: packet.at, bytes: packet.bytes, tcp, offset, is_retransmission: retransmitted, outcome }
    };
    records.iter().map(line).collect()
}

/// Sequence numbers of one direction of a connection.
struct SequenceTracker {
    initial_sequence: u32,
    /// The end of the data sent so far, relative to the first byte.
    highest_offset: i64,
}

impl SequenceTracker {
    const fn new(tcp: &TcpHeader) -> Self {
        Self { initial_sequence: tcp.sequence, highest_offset: 0 }
    }

    /// Returns the offset of a packet, and whether the packet is a retransmission. Sequence numbers wrap around after 4
    /// GiB (RFC 9293 section 3.4): of the possible offsets, the one nearest to the highest offset is used.
    fn on_segment(&mut self, tcp: &TcpHeader) -> (i64, bool) {
        let length = i64::from(tcp.length);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "modulo 2^32 is intended")]
        let expected = self.initial_sequence.wrapping_add(self.highest_offset as u32);
        let offset = self.highest_offset + i64::from(tcp.sequence.wrapping_sub(expected).cast_signed());
        let is_retransmission = length > 0 && offset < self.highest_offset;
        self.highest_offset = self.highest_offset.max(offset + length);
        (offset, is_retransmission)
    }
}

/// Returns the payload in one direction, in bytes.
fn payload(direction: &DirectionLog) -> u64 {
    direction.entries.iter().filter_map(|line| line.tcp).map(|tcp| u64::from(tcp.length)).sum()
}

/// Returns the bytes of new payload that a sender sent over the first link of the log before the acknowledgement of its
/// first byte arrived. Only packets in the given range of time count, in seconds since the start of the emulator. Of
/// several connections, the one with the most payload is used. `None` without a log, or without data in that range.
#[must_use]
pub fn first_burst(log: &[DirectionLog], [from, until]: [f64; 2]) -> Option<u64> {
    let directions = log.get(..2)?;
    let (data, answers) = if payload(&directions[0]) >= payload(&directions[1]) { (0, 1) } else { (1, 0) };
    #[allow(clippy::cast_precision_loss, reason = "a time below 2^53 ns")]
    let is_inside = |at: Nanos| (from..until).contains(&(at as f64 / 1e9));
    let new_entries =
        || directions[data].entries.iter().filter(|entry| is_inside(entry.at) && !entry.is_retransmission);
    let segments = || new_entries().filter_map(|entry| Some((entry.at, entry.tcp?))).filter(|(_, tcp)| tcp.length > 0);
    let mut totals: HashMap<(SocketAddr, SocketAddr), u64> = HashMap::new();
    segments().for_each(|(_, tcp)| *totals.entry((tcp.source, tcp.target)).or_default() += u64::from(tcp.length));
    let connection = totals.into_iter().max_by_key(|(connection, bytes)| (*bytes, *connection))?.0;
    let connection_segments = || segments().filter(|(_, tcp)| (tcp.source, tcp.target) == connection);
    let (start, first) = connection_segments().next()?;
    let acknowledged_at = directions[answers]
        .entries
        .iter()
        .find_map(|entry| acknowledgement_time(entry, &first).filter(|at| *at > start));
    Some(
        connection_segments()
            .take_while(|(at, _)| acknowledged_at.is_none_or(|acknowledged_at| *at < acknowledged_at))
            .map(|(_, tcp)| u64::from(tcp.length))
            .sum(),
    )
}

/// Returns the time when an acknowledgement of `first` reached the end of the link; `None` if the packet is not a
/// delivered acknowledgement of `first`.
fn acknowledgement_time(entry: &PacketLogEntry, first: &TcpHeader) -> Option<Nanos> {
    let tcp = entry.tcp.filter(|tcp| (tcp.source, tcp.target) == (first.target, first.source))?;
    let is_new = tcp.acknowledgement.wrapping_sub(first.sequence).cast_signed() > 0;
    match entry.outcome {
        PacketOutcome::Delivered { actual, .. } if is_new => Some(actual),
        _ => None,
    }
}

/// Returns a plot for each link of a log, in the direction with more payload.
#[must_use]
pub fn sequence_plots(log: &[DirectionLog]) -> Vec<SequencePlot> {
    let chosen: Vec<&DirectionLog> =
        log.chunks(2).filter_map(|directions| directions.iter().max_by_key(|direction| payload(direction))).collect();
    let zero = chosen.iter().filter_map(|direction| direction.entries.first()).map(|line| line.at).min();
    chosen.iter().map(|direction| sequence::sequence_plot(direction, zero.unwrap_or_default())).collect()
}

/// Returns the directory name of a log: treatment and levels, in characters that need no quoting in a shell.
#[must_use]
pub fn folder_name(cell_key: &CellKey) -> String {
    let text = cell_key.to_string();
    let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '.');
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

/// Writes a log into `folder`, one file of comma-separated values for each direction.
///
/// # Errors
/// The directory or a file cannot be written.
pub fn write_log(log: &[DirectionLog], folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for direction in log {
        let path = folder.join(format!("{}-{}-{}.csv", direction.link, direction.from, direction.to));
        std::fs::write(&path, csv(&direction.entries)).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

const CSV_HEADER: &str =
    "arrived_us,left_us,dropped,bytes,source,target,flags,sequence,acknowledgement,length,offset,again\n";

fn csv(lines: &[PacketLogEntry]) -> String {
    let micros = |at: Nanos| format!("{}.{:03}", at / 1000, at % 1000);
    let mut text = CSV_HEADER.to_owned();
    for line in lines {
        let (left, dropped) = match line.outcome {
            PacketOutcome::InFlight => (String::new(), ""),
            PacketOutcome::Delivered { actual, .. } => (micros(actual), ""),
            PacketOutcome::Dropped(cause, _) => (String::new(), cause.name()),
        };
        let _ = write!(text, "{},{left},{dropped},{}", micros(line.at), line.bytes);
        let _ = match line.tcp {
            None => writeln!(text, ",,,,,,,,"),
            Some(TcpHeader { source, target, sequence, acknowledgement, flags, length }) => writeln!(
                text,
                ",{source},{target},{},{sequence},{acknowledgement},{length},{},{}",
                flag_letters(flags),
                line.offset,
                u8::from(line.is_retransmission)
            ),
        };
    }
    text
}

/// Returns the first letters of the TCP flags, such as `SA` for SYN and ACK.
fn flag_letters(flags: u8) -> String {
    (0..8).rev().zip("CEUAPRSF".chars()).filter(|(bit, _)| flags >> bit & 1 == 1).map(|(_, letter)| letter).collect()
}

#[cfg(test)]
pub(in crate::experiment) mod tests;
