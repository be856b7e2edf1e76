//! A TLS connection as a byte stream, for code that reads and writes through `AsyncRead` and `AsyncWrite`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::tls::TlsCipher;

/// Maximum number of bytes that one write encrypts.
const MAX_WRITE: usize = 64 * 1024;

/// A connection and its cipher. Other code may inspect both while a [`TlsStream`] reads and writes.
#[derive(Debug)]
pub struct TlsConnection {
    /// The socket of the connection.
    pub stream: Rc<TcpStream>,
    /// The cipher of the connection, after the handshake.
    pub cipher: TlsCipher,
}

/// The reader and writer of a [`TlsConnection`]. Each connection has exactly one.
#[derive(Debug)]
pub struct TlsStream {
    connection: Rc<TlsConnection>,
    /// Records to send; the first `sent` bytes have been written to the socket.
    sealed: Vec<u8>,
    sent: usize,
    has_ended: bool,
}

impl TlsStream {
    /// Creates the stream of `connection`.
    #[must_use]
    pub fn new(connection: Rc<TlsConnection>) -> Self {
        Self { connection, sealed: Vec::new(), sent: 0, has_ended: false }
    }

    /// Writes the pending records to the socket.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = &self.connection.stream;
        while self.sent < self.sealed.len() {
            ready!(stream.poll_write_ready(context))?;
            match stream.try_write(&self.sealed[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        (self.sealed, self.sent) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let TlsConnection { stream, cipher } = &*self.connection;
        loop {
            match cipher.read(stream, buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(stream.poll_read_ready(context))?,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(context))?;
        let mut plaintext = Vec::new();
        for slice in slices {
            let room = MAX_WRITE - plaintext.len();
            plaintext.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        self.sealed = self.connection.cipher.seal(&plaintext)?;
        // Records that the socket does not accept now are sent before the next write.
        if let Poll::Ready(Err(error)) = self.poll_send(context) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(plaintext.len()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(context)
    }

    /// Sends `close_notify` and FIN.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(context))?;
        if !self.has_ended {
            self.has_ended = true;
            self.sealed = self.connection.cipher.end();
            ready!(self.poll_send(context))?;
        }
        Poll::Ready(SockRef::from(&*self.connection.stream).shutdown(std::net::Shutdown::Write))
    }
}
