//! The log of packets: what a run sent over some links, packet by packet, as the emulator saw it.
//!
//! A packet is *sent again* if it begins before the end of what its connection has sent so far: the log knows what went into a
//! link, not what its sender meant. Behind a link that reorders, some packets look as if they were.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddrV4;
use std::path::Path;

use anyhow::Context;

use crate::Nanos;
use crate::emulator::{Fate, LOGGED, Record, TcpHeader};
use crate::experiment::read::Place;
use crate::experiment::sequence::{self, Sequence};
use crate::topology::Lab;
use crate::topology::running::Running;

/// What went into one direction of a link.
#[derive(Debug, Clone, PartialEq)]
pub struct Direction {
    /// The link.
    pub link: String,
    /// From which host.
    pub from: String,
    /// To which host.
    pub to: String,
    /// Its packets, in the order in which they arrived.
    pub lines: Vec<Line>,
    /// Whether there were more than a log holds.
    pub is_cut: bool,
}

/// One packet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// When it arrived at the link, since the emulator started.
    pub at: Nanos,
    /// Its size as the link counts it.
    pub bytes: u32,
    /// Its TCP header, if it has one.
    pub tcp: Option<TcpHeader>,
    /// Its sequence number less that of the first packet of its connection in the log; of TCP.
    pub offset: i64,
    /// Whether its connection has sent such bytes before.
    pub again: bool,
    /// What became of it.
    pub fate: Fate,
}

/// Where logs were when the transfers began.
#[derive(Debug)]
pub struct Log(Vec<(String, [String; 2], usize)>);

impl Log {
    /// Begins here: what was sent before is left out.
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn begin(running: &Running, lab: &Lab, links: &[String]) -> anyhow::Result<Self> {
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

    /// What was sent since then.
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn end(self, running: &Running) -> anyhow::Result<Vec<Direction>> {
        let all = self.0.into_iter().map(|(link, [from, to], before)| {
            let records = running.records(&link, &from)?;
            let lines = lines(records.get(before..).unwrap_or_default());
            Ok(Direction { link, from, to, lines, is_cut: records.len() >= LOGGED })
        });
        all.collect()
    }
}

/// Lines of records, with what can be told only from those before them.
#[must_use]
pub fn lines(records: &[Record]) -> Vec<Line> {
    let mut connections: HashMap<(SocketAddrV4, SocketAddrV4), Connection> = HashMap::new();
    let line = |record: &Record| {
        let (mut offset, mut again) = (0, false);
        if let Some(tcp) = &record.tcp {
            let connection = connections.entry((tcp.source, tcp.target)).or_insert(Connection::of(tcp));
            (offset, again) = connection.take(tcp);
        }
        let Record { packet, tcp, fate, .. } = *record;
        Line { at: packet.at, bytes: packet.bytes, tcp, offset, again, fate }
    };
    records.iter().map(line).collect()
}

/// One direction of a connection.
struct Connection {
    first: u32,
    /// Where what was sent so far ends, since the first.
    end: i64,
}

impl Connection {
    const fn of(tcp: &TcpHeader) -> Self {
        Self { first: tcp.sequence, end: 0 }
    }

    /// Where a packet begins, and whether that has been sent before. Sequence numbers begin anew after 4 GiB (RFC 9293 section
    /// 3.4): which of the possible places is meant is the one near the end.
    fn take(&mut self, tcp: &TcpHeader) -> (i64, bool) {
        let length = i64::from(tcp.length);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "modulo 2^32 is what is meant")]
        let expected = self.first.wrapping_add(self.end as u32);
        let offset = self.end + i64::from(tcp.sequence.wrapping_sub(expected).cast_signed());
        let again = length > 0 && offset < self.end;
        self.end = self.end.max(offset + length);
        (offset, again)
    }
}

/// The pictures of a log: of each link the way of the data.
#[must_use]
pub fn pictures(log: &[Direction]) -> Vec<Sequence> {
    let payload = |direction: &&Direction| -> u64 {
        direction.lines.iter().filter_map(|line| line.tcp).map(|tcp| u64::from(tcp.length)).sum()
    };
    let chosen: Vec<&Direction> = log.chunks(2).filter_map(|ways| ways.iter().max_by_key(payload)).collect();
    let zero = chosen.iter().filter_map(|direction| direction.lines.first()).map(|line| line.at).min();
    chosen.iter().map(|direction| sequence::picture(direction, zero.unwrap_or_default())).collect()
}

/// What the folder of a log is called: the place in letters that no shell minds.
#[must_use]
pub fn folder_name(place: &Place) -> String {
    let text = place.to_string();
    let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '.');
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

/// Writes a log into `folder`, a table of comma-separated values for each direction.
///
/// # Errors
/// The file system's.
pub fn write(log: &[Direction], folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for direction in log {
        let path = folder.join(format!("{}-{}-{}.csv", direction.link, direction.from, direction.to));
        std::fs::write(&path, table(&direction.lines)).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

const HEAD: &str =
    "arrived_us,left_us,dropped,bytes,source,target,flags,sequence,acknowledgement,length,offset,again\n";

fn table(lines: &[Line]) -> String {
    let micros = |at: Nanos| format!("{}.{:03}", at / 1000, at % 1000);
    let mut text = HEAD.to_owned();
    for line in lines {
        let (left, dropped) = match line.fate {
            Fate::UnderWay => (String::new(), ""),
            Fate::Delivered { actual, .. } => (micros(actual), ""),
            Fate::Dropped(cause, _) => (String::new(), cause.name()),
        };
        let _ = write!(text, "{},{left},{dropped},{}", micros(line.at), line.bytes);
        let _ = match line.tcp {
            None => writeln!(text, ",,,,,,,,"),
            Some(TcpHeader { source, target, sequence, acknowledgement, flags, length }) => writeln!(
                text,
                ",{source},{target},{},{sequence},{acknowledgement},{length},{},{}",
                letters(flags),
                line.offset,
                u8::from(line.again)
            ),
        };
    }
    text
}

/// Flags by their first letters, as in `SA` of a connection that is accepted.
fn letters(flags: u8) -> String {
    (0..8).rev().zip("CEUAPRSF".chars()).filter(|(bit, _)| flags >> bit & 1 == 1).map(|(_, letter)| letter).collect()
}

#[cfg(test)]
pub(super) mod tests;
