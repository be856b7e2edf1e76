//! A connection with a write timeout: a client that stops reading loses its place.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long nothing may be read at the other end.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// A stream with a write timeout.
pub(super) struct WriteTimeoutStream<S> {
    connection: S,
    /// Since a write has had to wait.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeoutStream<S> {
    /// Nothing has waited yet.
    pub fn new(connection: S) -> Self {
        Self { connection, timer: None }
    }

    /// Passes on the outcome of a write, or measures the time without one.
    fn poll_outcome<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.timer = None;
            return written;
        }
        ready!(self.timer.get_or_insert_with(|| Box::pin(sleep(WRITE_TIMEOUT))).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeoutStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.connection).poll_write(cx, bytes);
        self.poll_outcome(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.connection).poll_write_vectored(cx, parts);
        self.poll_outcome(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_is_given_up() {
        let (near, _far) = duplex(10);
        let began = Instant::now();
        let error = WriteTimeoutStream::new(near).write_all(&[0; 11]).await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed().as_secs()), (io::ErrorKind::TimedOut, WRITE_TIMEOUT.as_secs()));
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_now_and_then_is_not() {
        let (near, mut far) = duplex(10);
        let reading = tokio::spawn(async move {
            for _ in 0..4 {
                sleep(WRITE_TIMEOUT / 2).await;
                far.read_exact(&mut [0; 10]).await.unwrap();
            }
        });
        WriteTimeoutStream::new(near).write_all(&[0; 40]).await.unwrap();
        reading.await.unwrap();
    }
}
