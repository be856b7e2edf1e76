//! What a client has sent and nobody has used yet.

use std::io;
use std::time::Duration;

use ekiden_proto::event::EndReason;
use ekiden_proto::wire::{Parsed, WireError};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::session::Session;

/// How much is read at once.
const STEP: usize = 4096;

/// Bytes from a stream, read as far as a parser needs them.
pub struct Inbox<'a> {
    stream: &'a TcpStream,
    bytes: Vec<u8>,
    deadline: Option<Instant>,
}

/// Why nothing could be read.
#[derive(Debug)]
pub enum Trouble {
    /// The stream ended (`UnexpectedEof`), or broke.
    Gone(io::ErrorKind),
    /// The deadline has passed.
    Late,
    /// The bytes are no message.
    Wire(WireError),
}

impl From<Trouble> for EndReason {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Gone(_) => Self::LeftEarly,
            Trouble::Late => Self::HandshakeTimeout,
            Trouble::Wire(WireError::Invalid(why)) => Self::BadHandshake(why),
            Trouble::Wire(WireError::TooLarge) => Self::BadHandshake("too large"),
            Trouble::Wire(WireError::Incomplete) => Self::BadHandshake("incomplete"),
        }
    }
}

impl<'a> Inbox<'a> {
    /// The inbox of a session's client.
    #[must_use]
    pub fn new(session: &'a Session) -> Self {
        Self::of(&session.client)
    }

    /// An inbox of any stream.
    #[must_use]
    pub fn of(stream: &'a TcpStream) -> Self {
        Self { stream, bytes: Vec::new(), deadline: None }
    }

    /// From here on all reads together have `span`; `None` lifts a bound.
    pub fn bound(&mut self, span: Option<Duration>) {
        self.deadline = span.map(|span| Instant::now() + span);
    }

    /// Waits for the first byte and leaves it in place.
    ///
    /// # Errors
    /// [`Trouble::Gone`].
    pub async fn first_byte(&mut self) -> Result<u8, Trouble> {
        while self.bytes.is_empty() {
            self.read_more().await?;
        }
        Ok(self.bytes[0])
    }

    /// Reads until `parse` has a value, and takes the bytes it used.
    ///
    /// # Errors
    /// [`Trouble`]; the bytes stay when they are no message.
    pub async fn next<T>(&mut self, parse: impl Fn(&[u8]) -> Parsed<T>) -> Result<T, Trouble> {
        loop {
            match parse(&self.bytes) {
                Ok((value, used)) => {
                    self.bytes.drain(..used);
                    if self.bytes.is_empty() {
                        // What comes next may be long in coming.
                        self.bytes = Vec::new();
                    }
                    return Ok(value);
                }
                Err(WireError::Incomplete) => self.read_more().await?,
                Err(error) => return Err(Trouble::Wire(error)),
            }
        }
    }

    /// Whether `parse` can decide from what is here.
    pub fn holds<T>(&self, parse: impl Fn(&[u8]) -> Parsed<T>) -> bool {
        !matches!(parse(&self.bytes), Err(WireError::Incomplete))
    }

    async fn read_more(&mut self) -> Result<(), Trouble> {
        loop {
            self.readable().await?;
            self.bytes.reserve(STEP);
            match self.stream.try_read_buf(&mut self.bytes) {
                Ok(0) => return Err(Trouble::Gone(io::ErrorKind::UnexpectedEof)),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(Trouble::Gone(error.kind())),
            }
        }
    }

    async fn readable(&self) -> Result<(), Trouble> {
        let readable = self.stream.readable();
        let readable = match self.deadline {
            Some(deadline) => timeout_at(deadline, readable).await.map_err(|_| Trouble::Late)?,
            None => readable.await,
        };
        readable.map_err(|error| Trouble::Gone(error.kind()))
    }

    /// Takes up to `most` of the bytes that are here.
    pub fn take(&mut self, most: u64) -> Vec<u8> {
        let count = usize::try_from(most).map_or(self.bytes.len(), |most| most.min(self.bytes.len()));
        let rest = self.bytes.split_off(count);
        std::mem::replace(&mut self.bytes, rest)
    }

    /// Takes all bytes that are here.
    pub fn take_all(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Whether nothing is here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether what is here looks like the beginning of an HTTP request.
    #[must_use]
    pub fn holds_http(&self) -> bool {
        self.bytes.first().is_some_and(u8::is_ascii_alphabetic)
    }
}
