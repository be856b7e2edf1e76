//! The packet log: the packets that a run sent over some links, as the emulator saw them.
//!
//! A packet counts as *sent again* if it begins before the highest sequence number of its connection: the log sees the
//! link, not the sender. Behind a link that reorders, some packets count as sent again by mistake.

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
    /// Its packets, in the order in which they arrived.
    pub entries: Vec<PacketLogEntry>,
    /// Whether there were more than a log holds.
    pub truncated: bool,
}

/// One packet of a log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PacketLogEntry {
    /// When it arrived at the link, since the emulator started.
    pub at: Nanos,
    /// Its size as the link counts it.
    pub bytes: u32,
    /// Its TCP header, if it has one.
    pub tcp: Option<TcpHeader>,
    /// Its sequence number less that of the first packet of its connection in the log; of TCP.
    pub offset: i64,
    /// Whether its connection has sent such bytes before.
    pub is_retransmission: bool,
    /// Whether the link delivered, marked or dropped the packet.
    pub outcome: PacketOutcome,
}

/// Where logs were when the transfers began.
#[derive(Debug)]
pub struct PacketLogRecorder(Vec<(String, [String; 2], usize)>);

impl PacketLogRecorder {
    /// Starts the log; earlier packets are left out.
    ///
    /// # Errors
    /// The emulator has ended.
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

    /// The packets since the start.
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

/// The lines of the records, with the figures that depend on earlier lines.
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

/// One direction of a connection.
struct SequenceTracker {
    initial_sequence: u32,
    /// The end of the data sent so far, relative to the first byte.
    highest_offset: i64,
}

impl SequenceTracker {
    const fn new(tcp: &TcpHeader) -> Self {
        Self { initial_sequence: tcp.sequence, highest_offset: 0 }
    }

    /// Where a packet begins, and whether that has been sent before. Sequence numbers begin anew after 4 GiB (RFC 9293 section
    /// 3.4): which of the possible places is meant is the one near the end.
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

/// How much payload went in a direction, in bytes.
fn payload(direction: &DirectionLog) -> u64 {
    direction.entries.iter().filter_map(|line| line.tcp).map(|tcp| u64::from(tcp.length)).sum()
}

/// How many bytes of new payload a sender sent over the first link of a log before it heard of the first of them, where the
/// time since the emulator started is in this range, in seconds. Of several connections, it is the one with most
/// payload. `None` without a log, or without data in that time.
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

/// When an acknowledgement of `first` reached the end of the link; `None` if the packet is none.
fn acknowledgement_time(entry: &PacketLogEntry, first: &TcpHeader) -> Option<Nanos> {
    let tcp = entry.tcp.filter(|tcp| (tcp.source, tcp.target) == (first.target, first.source))?;
    let is_new = tcp.acknowledgement.wrapping_sub(first.sequence).cast_signed() > 0;
    match entry.outcome {
        PacketOutcome::Delivered { actual, .. } if is_new => Some(actual),
        _ => None,
    }
}

/// The pictures of a log: of each link the way of the data.
#[must_use]
pub fn sequence_plots(log: &[DirectionLog]) -> Vec<SequencePlot> {
    let chosen: Vec<&DirectionLog> =
        log.chunks(2).filter_map(|directions| directions.iter().max_by_key(|direction| payload(direction))).collect();
    let zero = chosen.iter().filter_map(|direction| direction.entries.first()).map(|line| line.at).min();
    chosen.iter().map(|direction| sequence::sequence_plot(direction, zero.unwrap_or_default())).collect()
}

/// The directory name of a log: the place in characters that need no quoting in a shell.
#[must_use]
pub fn folder_name(cell_key: &CellKey) -> String {
    let text = cell_key.to_string();
    let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '.');
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

/// Writes a log into `folder`, a table of comma-separated values for each direction.
///
/// # Errors
/// The file system's.
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

/// Flags by their first letters, as in `SA` of a connection that is accepted.
fn flag_letters(flags: u8) -> String {
    (0..8).rev().zip("CEUAPRSF".chars()).filter(|(bit, _)| flags >> bit & 1 == 1).map(|(_, letter)| letter).collect()
}

#[cfg(test)]
pub(in crate::experiment) mod tests;
