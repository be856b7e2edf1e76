//! The writer sends a fixed amount in blocks of one size, each with one `write(2)`, as a simple program does.
//!
//! It sets no socket options: the measurement includes the cost of small blocks with Nagle's algorithm (RFC 896). With
//! a pause between blocks, each block starts with its timestamp, from which the [sink] computes delays.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Context;
use ekiden_sys::clock::monotonic;
use serde::{Deserialize, Serialize};

use crate::experiment::collect::cpu;
use crate::program::sink::{self, SinkReport};

/// Amount, block size and timing of the data to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteRequest {
    /// Address of the sink.
    pub to: SocketAddr,
    /// Total amount, in bytes.
    pub amount: u64,
    /// Size of a block, in bytes. The last block may be smaller.
    pub block: usize,
    /// Interval between the starts of blocks. `None`: without pause.
    pub pause: Option<Duration>,
}

/// Result of a transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WriterReport {
    /// Bytes received by the sink.
    pub bytes: u64,
    /// Time from just before the first `write(2)` to just after the last, in seconds.
    pub write_s: f64,
    /// Time from just before the first `write(2)` until the sink had the last byte, in seconds.
    pub completion_s: f64,
    /// Time of each block from `write(2)` until the sink had all of it, in seconds. Only for blocks with a pause.
    pub waits: Vec<f64>,
    /// CPU time of the writer, in seconds.
    pub cpu_s: f64,
    /// Pairs of seconds since the first `write(2)` and bytes received.
    pub timeline: Vec<(f64, u64)>,
}

/// Executes a write request, and waits for the report of the sink.
///
/// # Errors
/// The connection fails, or not all bytes arrived.
pub fn run(request: WriteRequest) -> anyhow::Result<WriterReport> {
    let mut stream = TcpStream::connect(request.to).with_context(|| format!("cannot connect to {}", request.to))?;
    let started = monotonic();
    let sent = match request.pause {
        None => write_blocks(&mut stream, request),
        Some(pause) => write_stamped_blocks(&mut stream, request, pause),
    };
    let write = monotonic() - started;
    sent.context("cannot send the data to the sink")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("the sink sent no report")?;
    let arrived: SinkReport =
        serde_json::from_str(&answer).with_context(|| format!("the sink sent an invalid report: {answer:.80}"))?;
    anyhow::ensure!(arrived.bytes == request.amount, "{} of {} bytes arrived", arrived.bytes, request.amount);
    let since = |time: Duration| time.saturating_sub(started).as_secs_f64();
    Ok(WriterReport {
        bytes: arrived.bytes,
        write_s: write.as_secs_f64(),
        completion_s: since(arrived.last),
        waits: arrived.waits,
        cpu_s: cpu::own_cpu_time().unwrap_or_default(),
        // The sink may accept the connection before `started` is read.
        timeline: arrived
            .timeline
            .iter()
            .map(|(at, bytes)| (since(arrived.began + duration_from_secs(*at)), *bytes))
            .collect(),
    })
}

fn duration_from_secs(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

fn write_blocks(stream: &mut TcpStream, request: WriteRequest) -> std::io::Result<()> {
    let block = vec![0; request.block];
    let mut remaining = request.amount;
    while remaining > 0 {
        let count = next_block_len(remaining, request.block);
        stream.write_all(&block[..count])?;
        remaining -= count as u64;
    }
    Ok(())
}

/// Writes blocks with timestamps, one every `pause`.
fn write_stamped_blocks(stream: &mut TcpStream, request: WriteRequest, pause: Duration) -> std::io::Result<()> {
    let mut block = vec![0; request.block];
    let (mut remaining, mut due) = (request.amount, monotonic());
    while remaining > 0 {
        std::thread::sleep(due.saturating_sub(monotonic()));
        let count = next_block_len(remaining, request.block);
        block[..sink::STAMP_LEN].copy_from_slice(&sink::encode_stamp(monotonic()));
        stream.write_all(&block[..count])?;
        (remaining, due) = (remaining - count as u64, due + pause);
    }
    Ok(())
}

fn next_block_len(remaining: u64, block: usize) -> usize {
    usize::try_from(remaining).unwrap_or(block).min(block)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Runs a request against a sink on another thread.
    fn write_through_sink(amount: u64, block: usize, pause: Option<Duration>) -> WriterReport {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            let served = scope.spawn(|| sink::serve_connection(listener.accept().unwrap().0, pause.map(|_| block)));
            let report = run(WriteRequest { to, amount, block, pause });
            served.join().unwrap().unwrap();
            report.unwrap()
        })
    }

    #[test]
    fn report_covers_all_blocks_until_their_arrival() {
        let written = write_through_sink(100_001, 1000, None);
        assert_eq!(written.bytes, 100_001);
        assert!(written.write_s > 0.0 && written.completion_s > 0.0, "{written:?}");
        assert_eq!(written.timeline.last().map(|(_, bytes)| *bytes), Some(100_001));
        let end = written.timeline.last().unwrap().0;
        assert!((end - written.completion_s).abs() < 1e-3, "{end} s and {} s", written.completion_s);
        assert!(written.waits.is_empty(), "blocks without pause have no timestamps");
    }

    #[test]
    fn blocks_with_a_pause_are_timed_individually() {
        let pause = Duration::from_millis(2);
        let written = write_through_sink(10 * 64, 64, Some(pause));
        assert_eq!(written.waits.len(), 10);
        assert!(written.waits.iter().all(|wait| (0.0..=written.completion_s).contains(wait)), "{written:?}");
        assert!(written.write_s >= 9.0 * pause.as_secs_f64(), "{} s", written.write_s);
    }

    #[test]
    fn refused_connection_is_reported() {
        // The port of a client is in use, but does not accept connections.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let to = client.local_addr().unwrap();
        let error = run(WriteRequest { to, amount: 1, block: 1, pause: None }).unwrap_err().to_string();
        assert_eq!(error, format!("cannot connect to {to}"));
    }
}
