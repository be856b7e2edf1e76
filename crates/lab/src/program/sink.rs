//! The sink: takes what a [writer](crate::program::writer) sends, and says at its end how much there was and when it arrived.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use ekiden_sys::clock::monotonic;
use serde::{Deserialize, Serialize};

use crate::experiment::transfer::ProgressSampler;
use crate::program::service::{LaunchSpec, Service};
use crate::topology::network::HostHandle;

/// The port it listens on.
pub const PORT: u16 = 5101;
/// The bytes of the time at which a block was written, at its start.
pub const STAMP_LEN: usize = 8;
/// How much is read at once.
const READ_CHUNK: usize = 256 * 1024;

/// What a sink has seen of one connection. Times are those of [`monotonic`], which the writer reads too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SinkReport {
    /// How many bytes.
    pub bytes: u64,
    /// When the connection was there.
    pub began: Duration,
    /// When the last byte was.
    pub last: Duration,
    /// How long each block was under way, in seconds; empty unless blocks carry their time.
    pub waits: Vec<f64>,
    /// Seconds since it began, bytes by then.
    pub timeline: Vec<(f64, u64)>,
}

/// The time as a block carries it: nanoseconds, in network byte order.
#[must_use]
pub fn encode_stamp(at: Duration) -> [u8; STAMP_LEN] {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX).to_be_bytes()
}

/// Starts one on `host`. `stamped` is the size of blocks that carry their time.
///
/// # Errors
/// It does not start.
pub fn start(host: &HostHandle, stamped: Option<u64>, folder: &Path) -> anyhow::Result<Service> {
    let mut arguments = vec!["sink".to_owned(), "--port".into(), PORT.to_string()];
    arguments.extend(stamped.map(|block| format!("--stamped={block}")));
    let launch = LaunchSpec { name: "sink".into(), executable: std::env::current_exe()?, arguments, port: Some(PORT) };
    Service::start(host, launch, folder)
}

/// Takes connections on `port` for ever, each in a thread.
///
/// # Errors
/// The port is taken.
pub fn serve(port: u16, stamped: Option<usize>) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    loop {
        let (stream, _) = listener.accept()?;
        // A connection that fails here fails at its writer, too, which tells.
        std::thread::spawn(move || drop(serve_connection(stream, stamped)));
    }
}

/// Takes everything there is on one connection, and answers. `stamped` is the size of blocks that carry their time.
///
/// # Errors
/// The connection's.
pub fn serve_connection(mut stream: TcpStream, stamped: Option<usize>) -> io::Result<()> {
    let (began, mut piece) = (monotonic(), vec![0; READ_CHUNK]);
    let (mut bytes, mut last, mut timeline) = (0, began, ProgressSampler::default());
    let mut stamps = stamped.map(StampDecoder::new);
    loop {
        let count = match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        last = monotonic();
        bytes += count as u64;
        timeline.record(last - began, bytes);
        if let Some(stamps) = &mut stamps {
            stamps.push(&piece[..count], last);
        }
    }
    let waits = stamps.map(|stamps| stamps.block_delays).unwrap_or_default();
    let arrived = SinkReport { bytes, began, last, waits, timeline: timeline.finish(last - began, bytes) };
    stream.write_all(serde_json::to_string(&arrived)?.as_bytes())
}

/// Takes the times out of blocks, however they arrive.
#[derive(Debug)]
struct StampDecoder {
    block: usize,
    /// How much of a block is there.
    filled: usize,
    stamp: [u8; STAMP_LEN],
    block_delays: Vec<f64>,
}

impl StampDecoder {
    fn new(block: usize) -> Self {
        Self { block: block.max(STAMP_LEN), filled: 0, stamp: [0; STAMP_LEN], block_delays: Vec::new() }
    }

    fn push(&mut self, mut bytes: &[u8], now: Duration) {
        while !bytes.is_empty() {
            let (taken, rest) = bytes.split_at(bytes.len().min(self.block - self.filled));
            let open = self.stamp.get_mut(self.filled..).unwrap_or_default();
            open.iter_mut().zip(taken).for_each(|(to, from)| *to = *from);
            (self.filled, bytes) = (self.filled + taken.len(), rest);
            if self.filled == self.block {
                let written = Duration::from_nanos(u64::from_be_bytes(self.stamp));
                self.block_delays.push(now.saturating_sub(written).as_secs_f64());
                self.filled = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_there_when_its_last_byte_is_however_it_is_cut() {
        let block = |at: u64| [&encode_stamp(Duration::from_millis(at))[..], &[7; 12]].concat();
        let bytes = [block(100), block(120), block(140)].concat();
        for piece in [1, 3, 8, 19, 20, 21, 60] {
            let mut stamps = StampDecoder::new(20);
            for (number, bytes) in bytes.chunks(piece).enumerate() {
                // The clock is that of bytes: one each millisecond from 150 ms on.
                let last = 150 + (number * piece + bytes.len()) as u64;
                stamps.push(bytes, Duration::from_millis(last));
            }
            let there = |end: u64| (end.div_ceil(piece as u64) * piece as u64).min(60) + 150;
            let wanted = [there(20) - 100, there(40) - 120, there(60) - 140].map(|ms| ms as f64 / 1e3);
            let close = stamps.block_delays.iter().zip(wanted).all(|(wait, wanted)| (wait - wanted).abs() < 1e-9);
            assert!(
                close && stamps.block_delays.len() == 3,
                "pieces of {piece}: {:?}, not {wanted:?}",
                stamps.block_delays
            );
        }
    }

    #[test]
    fn half_a_block_has_not_arrived() {
        let mut stamps = StampDecoder::new(20);
        stamps.push(&[0; 30], Duration::from_secs(1));
        assert_eq!(stamps.block_delays.len(), 1);
    }
}
