//! The server side of a report connection: another relay has connected and requests estimates of this relay's sections.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ekiden_proto::key::PublicKey;
use ekiden_proto::path::reading::{PumpTimes, TcpCounters, sample_receiving, sample_sending};
use ekiden_proto::wire::section::OpenAnswer;
use ekiden_proto::wire::section::report::{ProbeTrain, ReportMessage};
use ekiden_sys::tcp_info::tcp_counters;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::reports::SentEntries;
use super::{EstimateStore, PeerId};
use crate::pump::RecordCipher;

/// Minimum interval between two packet trains, independent of the number of requests.
const MIN_TRAIN_INTERVAL: Duration = Duration::from_secs(5);

/// Idle timeout of a connection: clients query every few seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Answers requests until the peer closes the connection or sends an invalid message, or `is_peer` returns false.
pub async fn serve(
    estimates: &EstimateStore,
    mut stream: TcpStream,
    cipher: &RecordCipher,
    caller: PublicKey,
    arrived_at: Instant,
    is_peer: impl Fn() -> bool,
) {
    let answer = OpenAnswer { outcome: Ok(()), relay_times: vec![arrived_at.elapsed()] };
    let exchange = async {
        stream.write_all(&cipher.seal_all(&answer.write())).await?;
        let mut connection = ReportConnection::new(stream, cipher, caller, false);
        connection.answer_requests(estimates, is_peer).await
    };
    // An error is not reported: the client connects again.
    let _: io::Result<()> = exchange.await;
}

/// One report connection, on either side.
pub(super) struct ReportConnection<'a> {
    pub stream: TcpStream,
    pub cipher: &'a RecordCipher,
    remote_key: PublicKey,
    /// Whether this relay has dialled the connection.
    dialled: bool,
    last_reading: TcpCounters,
    last_read_at: Instant,
}

impl<'a> ReportConnection<'a> {
    pub fn new(stream: TcpStream, cipher: &'a RecordCipher, remote_key: PublicKey, dialled: bool) -> Self {
        let last_reading = tcp_counters(stream.as_fd()).unwrap_or_default();
        Self { stream, cipher, remote_key, dialled, last_reading, last_read_at: Instant::now() }
    }

    async fn answer_requests(&mut self, estimates: &EstimateStore, is_peer: impl Fn() -> bool) -> io::Result<()> {
        let mut sent = SentEntries::default();
        let mut last_train: Option<Instant> = None;
        loop {
            let request = self.receive(IDLE_TIMEOUT).await?;
            if !is_peer() {
                return Ok(());
            }
            match request {
                ReportMessage::Query(query) => {
                    let entries = estimates.report_for(&query, self.remote_key, &mut sent);
                    self.send(&ReportMessage::Reply(entries)).await?;
                }
                ReportMessage::Probe(probe) => {
                    let is_early = last_train.is_some_and(|at| at.elapsed() < MIN_TRAIN_INTERVAL);
                    let bytes = if is_early { 0 } else { probe.reply_bytes };
                    last_train = Some(Instant::now());
                    self.send(&ReportMessage::Probe(ProbeTrain { bytes, reply_bytes: 0 })).await?;
                    self.record_sample(estimates);
                }
                ReportMessage::Reply(_) => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    /// Waits for the next record.
    pub async fn receive(&self, time_limit: Duration) -> io::Result<ReportMessage> {
        let record = timeout(time_limit, self.cipher.next_record(&self.stream)).await??;
        ReportMessage::read(&record.record[record.plaintext])
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    pub async fn send(&mut self, report: &ReportMessage) -> io::Result<()> {
        timeout(IDLE_TIMEOUT, self.stream.write_all(&self.cipher.seal_all(&report.write()))).await?
    }

    /// Records the samples of the connection since the last call.
    pub fn record_sample(&mut self, estimates: &EstimateStore) {
        let Ok(reading) = tcp_counters(self.stream.as_fd()) else { return };
        let pumped = PumpTimes { span: self.last_read_at.elapsed(), ..PumpTimes::default() };
        let (sending, receiving) = (
            sample_sending(&self.last_reading, &reading, pumped),
            sample_receiving(&self.last_reading, &reading, pumped),
        );
        (self.last_reading, self.last_read_at) = (reading, Instant::now());
        estimates.record_probe(PeerId::Relay(self.remote_key), self.dialled, &sending, &receiving);
    }
}
