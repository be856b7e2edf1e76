//! The side of a report connection that answers: one relay has called, and asks what our sections are like.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ekiden_proto::key::PublicKey;
use ekiden_proto::path::reading::{Pumped, Reading, receiving, sending};
use ekiden_proto::wire::section::Answer;
use ekiden_proto::wire::section::report::{Look, Report};
use ekiden_sys::tcp_info::reading;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::told::Heard;
use super::{Book, Place};
use crate::pump::Seal;

/// A train is sent back at most as often as this, whoever asks for more.
const APART: Duration = Duration::from_secs(5);

/// A caller that says nothing for so long is gone: it asks every few seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers until the caller leaves, or says what is no report.
pub async fn serve(book: &Book, mut stream: TcpStream, seal: &Seal, caller: PublicKey, came: Instant) {
    let answer = Answer { outcome: Ok(()), times: vec![came.elapsed()] };
    let talk = async {
        stream.write_all(&seal.sealed(&answer.write())).await?;
        let mut line = Line::new(stream, seal, caller, false);
        line.talk(book).await
    };
    // However it ends, there is nobody to tell: the caller comes again.
    let _: io::Result<()> = talk.await;
}

/// One report connection, of either side.
pub(super) struct Line<'a> {
    pub stream: TcpStream,
    pub seal: &'a Seal,
    other: PublicKey,
    /// Whether we have made the connection.
    dialled: bool,
    before: Reading,
    at: Instant,
}

impl<'a> Line<'a> {
    pub fn new(stream: TcpStream, seal: &'a Seal, other: PublicKey, dialled: bool) -> Self {
        let before = reading(stream.as_fd()).unwrap_or_default();
        Self { stream, seal, other, dialled, before, at: Instant::now() }
    }

    async fn talk(&mut self, book: &Book) -> io::Result<()> {
        let mut heard = Heard::default();
        let mut last_train: Option<Instant> = None;
        loop {
            match self.next(PATIENCE).await? {
                Report::Ask(ask) => {
                    let entries = book.answer(&ask, self.other, &mut heard);
                    self.send(&Report::Tell(entries)).await?;
                }
                Report::Look(look) => {
                    let is_early = last_train.is_some_and(|at| at.elapsed() < APART);
                    let bytes = if is_early { 0 } else { look.back };
                    last_train = Some(Instant::now());
                    self.send(&Report::Look(Look { bytes, back: 0 })).await?;
                    self.measure(book);
                }
                Report::Tell(_) => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    /// The next record.
    pub async fn next(&self, patience: Duration) -> io::Result<Report> {
        let record = timeout(patience, self.seal.next(&self.stream)).await??;
        Report::read(&record.record[record.plain]).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    pub async fn send(&mut self, report: &Report) -> io::Result<()> {
        timeout(PATIENCE, self.stream.write_all(&self.seal.sealed(&report.write()))).await?
    }

    /// Writes down what the connection has shown since the last time.
    pub fn measure(&mut self, book: &Book) {
        let Ok(now) = reading(self.stream.as_fd()) else { return };
        let pumped = Pumped { span: self.at.elapsed(), ..Pumped::default() };
        let (out, back) = (sending(&self.before, &now, pumped), receiving(&self.before, &now, pumped));
        (self.before, self.at) = (now, Instant::now());
        book.note_look(Place::Relay(self.other), self.dialled, (&out, &back));
    }
}
