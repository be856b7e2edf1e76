//! Bodies. One of known length goes through the same splice pump as everything else; chunks are read one by one, and
//! the data of each goes through the pump as well.

use std::io;

use ekiden_proto::limiting::Direction;
use ekiden_proto::wire::Parsed;
use ekiden_proto::wire::http::{Body, chunked};
use tokio::net::TcpStream;

use crate::ingress::inbox::{Inbox, Trouble};
use crate::ingress::manner::write_all;
use crate::pump::{Broken, Flow, Meter, PipePool, Side};

/// Longest trailer section, in bytes.
const LONGEST_TRAILERS: usize = 16 * 1024;

/// One way through which bodies go.
pub struct Lane<'a> {
    /// Where the bytes come from.
    pub from: &'a TcpStream,
    /// Where they go.
    pub to: &'a TcpStream,
    /// Which way that is.
    pub direction: Direction,
    /// The session's counters.
    pub meter: &'a Meter,
    /// The thread's pipes.
    pub pipes: &'a PipePool,
}

/// What a receiver of chunks understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// HTTP/1.1: chunks as they are.
    Chunks,
    /// HTTP/1.0: their data only.
    Plain,
}

impl Lane<'_> {
    /// Writes bytes of our own making.
    ///
    /// # Errors
    /// [`Broken::Writing`].
    pub async fn write(&self, bytes: &[u8]) -> Result<(), Broken> {
        write_all(self.to, bytes).await.map_err(Broken::Writing)?;
        self.meter.copied(self.direction, bytes.len());
        Ok(())
    }

    /// Carries a whole body, whose beginning may be in `inbox`. Where only the end of the connection ends the body at the
    /// receiver, the caller calls [`pump::abort`](crate::pump::abort) before, and [`pump::settle`](crate::pump::settle)
    /// once it knows that the body is whole.
    ///
    /// # Errors
    /// [`Broken`] by the side; a body that ends too early is [`Broken::Reading`].
    pub async fn carry(&self, inbox: &mut Inbox<'_>, body: Body, coding: Coding) -> Result<(), Broken> {
        match body {
            Body::Empty => Ok(()),
            Body::Length(length) => {
                let early = inbox.take(length);
                let rest = length - early.len() as u64;
                self.carry_exactly(early, rest).await
            }
            Body::Chunked => self.carry_chunks(inbox, coding).await,
            Body::UntilClose => self.flow(inbox.take_all(), u64::MAX).await.map(drop),
        }
    }

    async fn flow(&self, early: Vec<u8>, most: u64) -> Result<u64, Broken> {
        let flow = Flow::new(Side::plain(self.from), Side::plain(self.to), self.direction, self.meter, self.pipes);
        flow.beginning_with(early).limited_to(most).run().await
    }

    /// Carries `early`, and then `rest` bytes more.
    async fn carry_exactly(&self, early: Vec<u8>, rest: u64) -> Result<(), Broken> {
        if self.flow(early, rest).await? < rest {
            return Err(too_short());
        }
        Ok(())
    }

    async fn carry_chunks(&self, inbox: &mut Inbox<'_>, coding: Coding) -> Result<(), Broken> {
        // Framing waits here for the data behind it, so that a small chunk leaves in one write.
        let mut waiting = Vec::new();
        loop {
            let size = self.next(inbox, &mut waiting, chunked::ChunkHead::parse).await?;
            if size == 0 {
                break;
            }
            if coding == Coding::Chunks {
                waiting.extend_from_slice(chunked::write_chunk_head(size).as_bytes());
            }
            let here = inbox.take(size);
            let rest = size - here.len() as u64;
            waiting.extend_from_slice(&here);
            if rest > 0 {
                self.carry_exactly(std::mem::take(&mut waiting), rest).await?;
            }
            self.next(inbox, &mut waiting, chunked::parse_chunk_end).await?;
            if coding == Coding::Chunks {
                waiting.extend_from_slice(b"\r\n");
            }
        }
        let parse = |bytes: &[u8]| chunked::parse_trailers(bytes, LONGEST_TRAILERS);
        let trailers = self.next(inbox, &mut waiting, parse).await?;
        if coding == Coding::Chunks {
            waiting.extend_from_slice(b"0\r\n");
            waiting.extend_from_slice(&chunked::write_trailers(&trailers));
        }
        self.write(&waiting).await
    }

    /// Reads the next piece of framing; before it waits for the sender, it sends what it has.
    async fn next<T>(
        &self,
        inbox: &mut Inbox<'_>,
        waiting: &mut Vec<u8>,
        parse: impl Fn(&[u8]) -> Parsed<T>,
    ) -> Result<T, Broken> {
        if !inbox.holds(&parse) && !waiting.is_empty() {
            self.write(waiting).await?;
            waiting.clear();
        }
        inbox.next(parse).await.map_err(|trouble| match trouble {
            Trouble::Gone(kind) => Broken::Reading(kind.into()),
            Trouble::Late => Broken::Reading(io::ErrorKind::TimedOut.into()),
            Trouble::Wire(error) => Broken::Reading(io::Error::new(io::ErrorKind::InvalidData, error)),
        })
    }
}

fn too_short() -> Broken {
    Broken::Reading(io::ErrorKind::UnexpectedEof.into())
}
