//! The sink receives data from a [writer](crate::program::writer), and reports byte counts and arrival times at the
//! end.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use ekiden_sys::clock::monotonic;
use serde::{Deserialize, Serialize};

use crate::experiment::run::transfer::ProgressSampler;
use crate::program::service::{LaunchSpec, Service};
use crate::topology::network::HostHandle;

/// Listening port of the sink.
pub const PORT: u16 = 5101;
/// Size of the timestamp at the start of a block, in bytes.
pub const STAMP_LEN: usize = 8;
/// Size of the read buffer, in bytes.
const READ_CHUNK: usize = 256 * 1024;

/// Report of a sink about one connection. Times are from [`monotonic`], whose clock the writer shares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SinkReport {
    /// Number of bytes received.
    pub bytes: u64,
    /// Time of the accept.
    pub began: Duration,
    /// Time of the last byte.
    pub last: Duration,
    /// Delay of each block, in seconds; empty without timestamps.
    pub waits: Vec<f64>,
    /// Pairs of seconds since the accept and bytes received.
    pub timeline: Vec<(f64, u64)>,
}

/// Encodes the timestamp of a block: nanoseconds, in network byte order.
#[must_use]
pub fn encode_stamp(at: Duration) -> [u8; STAMP_LEN] {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX).to_be_bytes()
}

/// Starts a sink on `host`. `stamped` is the size of blocks with timestamps.
///
/// # Errors
/// The sink does not start.
pub fn start(host: &HostHandle, stamped: Option<u64>, folder: &Path) -> anyhow::Result<Service> {
    let mut arguments = vec!["sink".to_owned(), "--port".into(), PORT.to_string()];
    arguments.extend(host.address().is_ipv6().then(|| "--ipv6".to_owned()));
    arguments.extend(stamped.map(|block| format!("--stamped={block}")));
    let launch = LaunchSpec { name: "sink".into(), executable: std::env::current_exe()?, arguments, port: Some(PORT) };
    Service::start(host, launch, folder)
}

/// Accepts connections at the port of `address` forever, each on a new thread.
///
/// # Errors
/// The port is in use.
pub fn serve(address: SocketAddr, stamped: Option<usize>) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    loop {
        let (stream, _) = listener.accept()?;
        // A failure here also fails the writer, which reports the error.
        std::thread::spawn(move || drop(serve_connection(stream, stamped)));
    }
}

/// Receives all data of a connection, and sends the report. `stamped` is the size of blocks with timestamps.
///
/// # Errors
/// The connection fails.
pub fn serve_connection(mut stream: TcpStream, stamped: Option<usize>) -> io::Result<()> {
    let (began, mut buffer) = (monotonic(), vec![0; READ_CHUNK]);
    let (mut bytes, mut last, mut timeline) = (0, began, ProgressSampler::default());
    let mut stamps = stamped.map(StampDecoder::new);
    loop {
        let count = match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        last = monotonic();
        bytes += count as u64;
        timeline.record(last - began, bytes);
        if let Some(stamps) = &mut stamps {
            stamps.push(&buffer[..count], last);
        }
    }
    let waits = stamps.map(|stamps| stamps.block_delays).unwrap_or_default();
    let report = SinkReport { bytes, began, last, waits, timeline: timeline.finish(last - began, bytes) };
    stream.write_all(serde_json::to_string(&report)?.as_bytes())
}

/// Extracts timestamps from blocks, however the reads split them.
#[derive(Debug)]
struct StampDecoder {
    block: usize,
    /// Number of bytes received of the current block.
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
            let (chunk, rest) = bytes.split_at(bytes.len().min(self.block - self.filled));
            let unfilled = self.stamp.get_mut(self.filled..).unwrap_or_default();
            unfilled.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            (self.filled, bytes) = (self.filled + chunk.len(), rest);
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
    fn block_arrives_with_its_last_byte_for_any_chunk_size() {
        let block = |at: u64| [&encode_stamp(Duration::from_millis(at))[..], &[7; 12]].concat();
        let bytes = [block(100), block(120), block(140)].concat();
        for piece in [1, 3, 8, 19, 20, 21, 60] {
            let mut stamps = StampDecoder::new(20);
            for (number, bytes) in bytes.chunks(piece).enumerate() {
                // One byte arrives per millisecond, from 150 ms on.
                let last = 150 + (number * piece + bytes.len()) as u64;
                stamps.push(bytes, Duration::from_millis(last));
            }
            let arrival = |end: u64| (end.div_ceil(piece as u64) * piece as u64).min(60) + 150;
            let wanted = [arrival(20) - 100, arrival(40) - 120, arrival(60) - 140].map(|ms| ms as f64 / 1e3);
            let close = stamps.block_delays.iter().zip(wanted).all(|(wait, wanted)| (wait - wanted).abs() < 1e-9);
            assert!(
                close && stamps.block_delays.len() == 3,
                "pieces of {piece}: {:?}, not {wanted:?}",
                stamps.block_delays
            );
        }
    }

    #[test]
    fn incomplete_block_is_not_counted() {
        let mut stamps = StampDecoder::new(20);
        stamps.push(&[0; 30], Duration::from_secs(1));
        assert_eq!(stamps.block_delays.len(), 1);
    }
}
