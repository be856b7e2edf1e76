//! Delivery traces in the format of mahimahi (Netravali and others, USENIX ATC 2015; mm-link(1)): the times at which a
//! line delivers packets.
//!
//! Each line of a file is a time in milliseconds since the start, and an opportunity to deliver 1504 bytes. At the last
//! time the trace starts over. A packet counts with 4 bytes more than its IP packet, the header of mahimahi's TUN device,
//! so that an opportunity delivers one packet of 1500 bytes or several smaller ones. A packet may continue in the next
//! opportunity. Bytes of an opportunity that find no packet are lost.

use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Arc;

use ekiden_proto::units::Rate;
use serde::{Deserialize, Serialize};

use crate::{MS, Nanos};

/// Size of an opportunity, in bytes.
pub const OPPORTUNITY_BYTES: u32 = 1504;
/// Size of a packet in addition to its IP packet, in bytes.
pub const PACKET_OVERHEAD: u32 = 4;
/// Maximum duration of a trace, in milliseconds: eleven days.
const MAX_MILLISECONDS: u64 = 1_000_000_000;

/// Times of opportunities, in milliseconds. The times do not decrease, and the last is not 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct DeliveryTrace(Arc<[u64]>);

/// The reason why a trace is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line of a file is not a time.
    #[error("line {line}: expected a time in milliseconds up to {MAX_MILLISECONDS}, not {text:?}")]
    NotATime {
        /// Number of the line, from 1.
        line: usize,
        /// Text of the line.
        text: String,
    },
    /// A time is before the previous time.
    #[error("line {line}: {time} is before {previous}, the time of the previous line")]
    Decreasing {
        /// Number of the time, from 1.
        line: usize,
        /// The time, in milliseconds.
        time: u64,
        /// The previous time, in milliseconds.
        previous: u64,
    },
    /// The trace has no times.
    #[error("expected at least one time")]
    Empty,
    /// The last time, at which the trace starts over, is 0.
    #[error("expected a last time above 0, at which the trace starts over")]
    NoDuration,
}

impl TryFrom<Vec<u64>> for DeliveryTrace {
    type Error = TraceError;

    fn try_from(times: Vec<u64>) -> Result<Self, TraceError> {
        if let Some(index) = times.iter().position(|time| *time > MAX_MILLISECONDS) {
            return Err(TraceError::NotATime { line: index + 1, text: times[index].to_string() });
        }
        if let Some(index) = times.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(TraceError::Decreasing { line: index + 2, time: times[index + 1], previous: times[index] });
        }
        match times.last() {
            None => Err(TraceError::Empty),
            Some(0) => Err(TraceError::NoDuration),
            Some(_) => Ok(Self(times.into())),
        }
    }
}

impl From<DeliveryTrace> for Vec<u64> {
    fn from(trace: DeliveryTrace) -> Self {
        trace.0.to_vec()
    }
}

impl FromStr for DeliveryTrace {
    type Err = TraceError;

    /// Reads a file. As in mahimahi, an empty line is an error.
    fn from_str(text: &str) -> Result<Self, TraceError> {
        let times = text.lines().enumerate().map(|(index, line)| {
            let digits = line.trim_end();
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let time = digits.parse().ok().filter(|_| is_number);
            time.ok_or_else(|| TraceError::NotATime { line: index + 1, text: line.to_owned() })
        });
        times.collect::<Result<Vec<u64>, _>>().and_then(Self::try_from)
    }
}

impl DeliveryTrace {
    /// Returns the times, in milliseconds.
    #[must_use]
    pub fn times(&self) -> &[u64] {
        &self.0
    }

    /// Returns the time after which the trace starts over.
    fn period(&self) -> Nanos {
        self.0.last().copied().unwrap_or(1) * MS
    }

    /// Returns the rate of full-size packets over the whole trace.
    #[must_use]
    pub fn mean_rate(&self) -> Rate {
        let bits = self.0.len() as u128 * u128::from(OPPORTUNITY_BYTES - PACKET_OVERHEAD) * 8;
        let rate = bits * 1_000_000_000 / u128::from(self.period());
        Rate::from_bits_per_second(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

/// A position in a trace that starts at time 0 and repeats for ever.
#[derive(Debug)]
pub struct DeliverySchedule {
    trace: DeliveryTrace,
    /// Number of repetitions before the next opportunity.
    cycle: u64,
    /// Index of the next opportunity.
    next: usize,
    /// Time of the current opportunity.
    current: Nanos,
    /// Bytes left of the current opportunity.
    bytes_left: u32,
}

impl DeliverySchedule {
    /// Creates a schedule at the start of `trace`.
    #[must_use]
    pub const fn new(trace: DeliveryTrace) -> Self {
        Self { trace, cycle: 0, next: 0, current: 0, bytes_left: 0 }
    }

    /// Returns the trace of the schedule.
    #[must_use]
    pub const fn trace(&self) -> &DeliveryTrace {
        &self.trace
    }

    /// Returns the time of the next opportunity.
    #[must_use]
    pub fn next_opportunity(&self) -> Nanos {
        self.cycle * self.trace.period() + self.trace.0[self.next] * MS
    }

    /// Returns whether the current opportunity has bytes left.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.bytes_left > 0
    }

    /// Starts the next opportunity.
    pub fn open(&mut self) {
        self.current = self.next_opportunity();
        self.bytes_left = OPPORTUNITY_BYTES;
        self.next += 1;
        if self.next == self.trace.0.len() {
            (self.cycle, self.next) = (self.cycle + 1, 0);
        }
    }

    /// Ends the current opportunity: its bytes are lost.
    pub const fn close(&mut self) {
        self.bytes_left = 0;
    }

    /// Skips the opportunities before `time`, which are lost.
    pub fn skip_before(&mut self, time: Nanos) {
        if self.next_opportunity() >= time {
            return;
        }
        let period = self.trace.period();
        self.cycle = (time - 1) / period;
        let rest = time - self.cycle * period;
        self.next = self.trace.0.partition_point(|at| at * MS < rest);
    }

    /// Takes `bytes` from the current and the next opportunities. Returns the time of the last of them.
    pub fn transmit(&mut self, mut bytes: u32) -> Nanos {
        while bytes > self.bytes_left {
            bytes -= self.bytes_left;
            self.open();
        }
        self.bytes_left -= bytes;
        self.current
    }
}

/// Records what a line delivers as a trace.
#[derive(Debug, Default)]
pub struct DeliveryRecorder {
    text: String,
    /// Bytes since the last recorded opportunity.
    bytes: u32,
}

impl DeliveryRecorder {
    /// Records the delivery of an IP packet of `bytes` at the time `at`. Times do not decrease.
    pub fn record(&mut self, at: Nanos, bytes: u32) {
        self.bytes = self.bytes.saturating_add(bytes + PACKET_OVERHEAD);
        while self.bytes >= OPPORTUNITY_BYTES {
            self.bytes -= OPPORTUNITY_BYTES;
            // A String takes any text.
            let _ = writeln!(self.text, "{}", at / MS);
        }
    }

    /// Returns the lines of the file; none if less than an opportunity has been delivered.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<u64>, String> {
        text.parse::<DeliveryTrace>().map(Vec::from).map_err(|error| error.to_string())
    }

    #[test]
    fn trace_file_is_parsed_and_errors_name_the_line() {
        assert_eq!(read("0\n3\n3\n10\n"), Ok(vec![0, 3, 3, 10]));
        assert_eq!(read("5\r\n5"), Ok(vec![5, 5]));
        for (text, error) in [
            ("", "expected at least one time"),
            ("0\n0\n", "expected a last time above 0, at which the trace starts over"),
            ("1\n\n2\n", "line 2: expected a time in milliseconds up to 1000000000, not \"\""),
            ("1\n-2\n", "line 2: expected a time in milliseconds up to 1000000000, not \"-2\""),
            ("1\n+2\n", "line 2: expected a time in milliseconds up to 1000000000, not \"+2\""),
            ("1.5\n", "line 1: expected a time in milliseconds up to 1000000000, not \"1.5\""),
            ("1000000001\n", "line 1: expected a time in milliseconds up to 1000000000, not \"1000000001\""),
            ("4\n9\n8\n", "line 3: 8 is before 9, the time of the previous line"),
        ] {
            assert_eq!(read(text), Err(error.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn the_mean_rate_is_that_of_full_packets() {
        assert_eq!(DeliveryTrace::try_from(vec![1]).unwrap().mean_rate().to_string(), "12Mbit/s");
        assert_eq!(DeliveryTrace::try_from(vec![0, 0, 500, 1000]).unwrap().mean_rate().bits_per_second(), 48_000);
    }

    #[test]
    fn skip_before_ends_at_the_first_opportunity_not_before_the_time() {
        let trace = DeliveryTrace::try_from(vec![0, 2, 2, 7]).unwrap();
        let times: Vec<Nanos> = (0..5).flat_map(|cycle| [0, 2, 2, 7].map(|at| (cycle * 7 + at) * MS)).collect();
        for half_ms in 0..60 {
            let time = half_ms * MS / 2;
            let mut schedule = DeliverySchedule::new(trace.clone());
            schedule.skip_before(time);
            let rest: Vec<Nanos> = times.iter().copied().filter(|at| *at >= time).collect();
            for at in rest.iter().take(4) {
                assert_eq!(schedule.next_opportunity(), *at, "after {time}");
                schedule.open();
            }
        }
    }

    #[test]
    fn a_recorder_writes_a_line_for_each_full_opportunity() {
        let mut recorder = DeliveryRecorder::default();
        recorder.record(MS, 1500);
        // 34 acknowledgements of 40 bytes fill an opportunity of 1504 bytes less 8.
        (0..34).for_each(|_| recorder.record(2 * MS, 40));
        recorder.record(5 * MS - 1, 1500);
        assert_eq!(recorder.into_text(), "1\n4\n");
    }
}
