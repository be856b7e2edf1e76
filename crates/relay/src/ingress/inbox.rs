//! What a client has sent and nobody has used yet.

use ekiden_proto::event::End;
use ekiden_proto::wire::{Parsed, WireError};
use tokio::net::TcpStream;

use crate::session::Session;

/// How much is read at once.
const STEP: usize = 4096;

/// Bytes from a stream, read as far as a parser needs them.
pub struct Inbox<'a> {
    stream: &'a TcpStream,
    bytes: Vec<u8>,
}

/// Why nothing could be read.
#[derive(Debug)]
pub enum Trouble {
    /// The stream ended, or broke.
    Gone,
    /// The bytes are no message.
    Wire(WireError),
}

impl From<Trouble> for End {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Gone => Self::LeftEarly,
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
        Self { stream, bytes: Vec::new() }
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
            self.stream.readable().await.map_err(|_| Trouble::Gone)?;
            self.bytes.reserve(STEP);
            match self.stream.try_read_buf(&mut self.bytes) {
                Ok(0) => return Err(Trouble::Gone),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return Err(Trouble::Gone),
            }
        }
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
