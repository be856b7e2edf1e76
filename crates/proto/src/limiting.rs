//! Why was it slow, and on which section? Answered from two clocks of the pump (waiting for bytes to arrive, waiting
//! for room to send) and what the kernel knows of the sending section.

use std::fmt;
use std::time::Duration;

use crate::event::SectionInfo;

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Toward the client.
    Down,
    /// Toward the server.
    Up,
}

impl Direction {
    /// The way back.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Down => Self::Up,
            Self::Up => Self::Down,
        }
    }

    /// The word used in logs and metric labels.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Up => "up",
        }
    }
}

/// What held the sending section back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// Bytes did not arrive fast enough: the sender beyond that section, or that section itself.
    Arrival,
    /// The receiver's window: its buffer is small, or the program there reads slowly.
    ReceiveWindow,
    /// Our send buffer was too small for the path.
    SendBuffer,
    /// Losses kept the congestion window down.
    Loss,
    /// The path's rate.
    Rate,
}

/// The section that held a session back, and by what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limited {
    /// `Down` is the client's section, `Up` the server's.
    pub section: Direction,
    /// By what.
    pub by: Bottleneck,
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.by {
            Bottleneck::Arrival => "arrival",
            Bottleneck::ReceiveWindow => "receive_window",
            Bottleneck::SendBuffer => "send_buffer",
            Bottleneck::Loss => "loss",
            Bottleneck::Rate => "rate",
        };
        write!(f, "{}:{by}", self.section.word())
    }
}

serialize_as_text!(Limited);

/// A session has to move this much in one direction before a verdict means anything.
const ENOUGH: u64 = 256 * 1024;

/// Loss is to blame from one retransmission in two hundred segments: below it, CUBIC fills a 50 ms path at 10 Mbit/s.
const LOSSY: u32 = 200;

/// Names what held back the direction that moved the most.
///
/// `direction` is where the bytes went, `stalled` how long the pump had bytes but no room to send them during
/// `duration`, and `sending` the section it sent into. `None` when too little moved to tell.
#[must_use]
pub fn limiting(
    direction: Direction,
    bytes: u64,
    stalled: Duration,
    duration: Duration,
    sending: &SectionInfo,
) -> Option<Limited> {
    if bytes < ENOUGH {
        return None;
    }
    if stalled * 2 < duration {
        // Most of the time there was room to send and nothing to be sent.
        return Some(Limited { section: direction.other(), by: Bottleneck::Arrival });
    }
    let by = if sending.rwnd_limited * 2 > sending.busy {
        Bottleneck::ReceiveWindow
    } else if sending.sndbuf_limited * 2 > sending.busy {
        Bottleneck::SendBuffer
    } else if u64::from(sending.retransmitted) * u64::from(LOSSY) > u64::from(sending.segments_out) {
        Bottleneck::Loss
    } else {
        Bottleneck::Rate
    };
    Some(Limited { section: direction, by })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(stalled: u64, sending: SectionInfo) -> Option<String> {
        let second = Duration::from_secs;
        limiting(Direction::Down, 1 << 30, second(stalled), second(10), &sending).map(|l| l.to_string())
    }

    #[test]
    fn the_slow_section_is_named() {
        let busy = SectionInfo { busy: Duration::from_secs(10), segments_out: 10_000, ..SectionInfo::default() };
        let six = Duration::from_secs(6);
        assert_eq!(verdict(1, busy).as_deref(), Some("up:arrival"));
        assert_eq!(verdict(9, busy).as_deref(), Some("down:rate"));
        assert_eq!(verdict(9, SectionInfo { rwnd_limited: six, ..busy }).as_deref(), Some("down:receive_window"));
        assert_eq!(verdict(9, SectionInfo { sndbuf_limited: six, ..busy }).as_deref(), Some("down:send_buffer"));
        assert_eq!(verdict(9, SectionInfo { retransmitted: 60, ..busy }).as_deref(), Some("down:loss"));
        assert_eq!(verdict(9, SectionInfo { retransmitted: 40, ..busy }).as_deref(), Some("down:rate"));
    }

    #[test]
    fn little_data_gives_no_verdict() {
        let none = limiting(Direction::Up, ENOUGH - 1, Duration::ZERO, Duration::from_secs(1), &SectionInfo::default());
        assert_eq!(none, None);
    }
}
