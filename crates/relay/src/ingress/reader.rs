//! Reads handshakes: buffers the bytes of a stream until a parser accepts them.

use std::io;
use std::time::Duration;

use ekiden_proto::event::EndReason;
use ekiden_proto::wire::{Parsed, WireError};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::session::Session;

/// Largest read, in bytes.
const STEP: usize = 4096;

/// Reads a stream as far as a parser needs, before an optional deadline.
pub struct HandshakeReader<'a> {
    stream: &'a TcpStream,
    bytes: Vec<u8>,
    deadline: Option<Instant>,
}

/// A failed read.
#[derive(Debug)]
pub enum ReadError {
    /// The stream ended (`UnexpectedEof`) or failed.
    Gone(io::ErrorKind),
    /// The deadline has passed.
    Late,
    /// The bytes are not a valid message.
    Wire(WireError),
}

impl From<ReadError> for EndReason {
    fn from(trouble: ReadError) -> Self {
        match trouble {
            ReadError::Gone(_) => Self::LeftEarly,
            ReadError::Late => Self::HandshakeTimeout,
            ReadError::Wire(WireError::Invalid(why)) => Self::BadHandshake(why),
            ReadError::Wire(WireError::TooLarge) => Self::BadHandshake("too large"),
            ReadError::Wire(WireError::Incomplete) => Self::BadHandshake("incomplete"),
        }
    }
}

impl<'a> HandshakeReader<'a> {
    /// A reader of the client's section.
    #[must_use]
    pub fn new(session: &'a Session) -> Self {
        Self::from_stream(&session.client)
    }

    /// A reader of any stream.
    #[must_use]
    pub fn from_stream(stream: &'a TcpStream) -> Self {
        Self { stream, bytes: Vec::new(), deadline: None }
    }

    /// Bounds all following reads together by `span`; `None` removes the deadline.
    pub fn set_deadline(&mut self, span: Option<Duration>) {
        self.deadline = span.map(|span| Instant::now() + span);
    }

    /// Waits for the first byte and leaves it in place.
    ///
    /// # Errors
    /// [`ReadError::Gone`] or [`ReadError::Late`].
    pub async fn first_byte(&mut self) -> Result<u8, ReadError> {
        while self.bytes.is_empty() {
            self.read_more().await?;
        }
        Ok(self.bytes[0])
    }

    /// Reads until `parse` returns a value, and consumes the bytes it used.
    ///
    /// # Errors
    /// [`ReadError`]; bytes that are not a valid message stay in the buffer.
    pub async fn next<T>(&mut self, parse: impl Fn(&[u8]) -> Parsed<T>) -> Result<T, ReadError> {
        loop {
            match parse(&self.bytes) {
                Ok((value, used)) => {
                    self.bytes.drain(..used);
                    if self.bytes.is_empty() {
                        // The next message may take minutes; an idle session holds no buffer.
                        self.bytes = Vec::new();
                    }
                    return Ok(value);
                }
                Err(WireError::Incomplete) => self.read_more().await?,
                Err(error) => return Err(ReadError::Wire(error)),
            }
        }
    }

    /// Whether `parse` needs no further bytes.
    pub fn can_parse<T>(&self, parse: impl Fn(&[u8]) -> Parsed<T>) -> bool {
        !matches!(parse(&self.bytes), Err(WireError::Incomplete))
    }

    async fn read_more(&mut self) -> Result<(), ReadError> {
        loop {
            self.wait_readable().await?;
            self.bytes.reserve(STEP);
            match self.stream.try_read_buf(&mut self.bytes) {
                Ok(0) => return Err(ReadError::Gone(io::ErrorKind::UnexpectedEof)),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(ReadError::Gone(error.kind())),
            }
        }
    }

    async fn wait_readable(&self) -> Result<(), ReadError> {
        let readable = self.stream.readable();
        let readable = match self.deadline {
            Some(deadline) => timeout_at(deadline, readable).await.map_err(|_| ReadError::Late)?,
            None => readable.await,
        };
        readable.map_err(|error| ReadError::Gone(error.kind()))
    }

    /// Takes up to `most` buffered bytes.
    pub fn take(&mut self, most: u64) -> Vec<u8> {
        let count = usize::try_from(most).map_or(self.bytes.len(), |most| most.min(self.bytes.len()));
        let rest = self.bytes.split_off(count);
        std::mem::replace(&mut self.bytes, rest)
    }

    /// Takes all buffered bytes.
    pub fn take_all(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Whether the buffer is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether the buffer starts like an HTTP request.
    #[must_use]
    pub fn is_http(&self) -> bool {
        self.bytes.first().is_some_and(u8::is_ascii_alphabetic)
    }
}
