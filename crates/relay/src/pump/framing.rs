//! How the bytes of a session are framed on a connection, and where a framed stream ends.

use std::future::poll_fn;
use std::io::{self, Read};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use ekiden_proto::wire::section::chunk::{self, ChunkReader};
use socket2::SockRef;
use tokio::io::ReadBuf;
use tokio::net::TcpStream;

use super::cipher::RecordCipher;
use super::flow::{has_unread, read_once, with};
use super::kernel_tls::KernelTls;
use super::tls::TlsCipher;

/// The framing of a session's bytes on one connection (docs/section-protocol.md).
#[derive(Debug, Clone, Copy)]
pub enum Framing<'a> {
    /// No framing: the bytes of the session, until FIN.
    Raw,
    /// Records on a section that is closed after the session.
    Records(&'a RecordCipher),
    /// Records, on a reusable section.
    ReusableRecords(&'a RecordCipher),
    /// Plaintext chunks, on a reusable section. Only the end of the stream is a record.
    Chunks(&'a RecordCipher),
    /// TLS, toward a client.
    Tls(&'a TlsCipher),
    /// Kernel TLS, toward a client: this process reads and writes the bytes of the session, until an alert.
    KernelTls(&'a KernelTls),
}

/// A section, and how the bytes of its session are framed.
#[derive(Debug)]
pub struct FramedSection {
    /// The cipher of the section.
    pub cipher: RecordCipher,
    /// Whether the session's bytes are in records.
    pub encrypt: bool,
    /// Whether another session follows on the same connection.
    pub reusable: bool,
}

impl FramedSection {
    /// The framing of the session's bytes.
    pub const fn framing(&self) -> Framing<'_> {
        match (self.encrypt, self.reusable) {
            (false, false) => Framing::Raw,
            (false, true) => Framing::Chunks(&self.cipher),
            (true, false) => Framing::Records(&self.cipher),
            (true, true) => Framing::ReusableRecords(&self.cipher),
        }
    }

    /// Returns the section, or `None` if the session's bytes are raw, so that the cipher, which is large, can be freed.
    pub fn if_framed(self: Rc<Self>) -> Option<Rc<Self>> {
        if self.framing().is_raw() { None } else { Some(self) }
    }

    /// Configures the cipher for the bytes after OPEN.
    pub fn on_opened(&self) {
        if self.reusable {
            self.cipher.allow_next_session();
        }
        if self.encrypt {
            self.cipher.allow_read_ahead();
        }
    }
}

/// One side of a flow: a connection and its framing.
#[derive(Debug, Clone, Copy)]
pub struct Endpoint<'a> {
    /// The connection of this side.
    pub stream: &'a TcpStream,
    /// The framing of its bytes.
    pub framing: Framing<'a>,
}

impl<'a> Endpoint<'a> {
    /// Creates an endpoint without framing.
    #[must_use]
    pub fn plain(stream: &'a TcpStream) -> Self {
        Self { stream, framing: Framing::Raw }
    }

    /// Returns whether the next read needs bytes from the socket, because no buffered record provides any.
    pub fn is_read_from_socket(self) -> bool {
        !self.framing.records().is_some_and(RecordCipher::has_record)
            && !self.framing.tls().is_some_and(TlsCipher::has_data)
    }

    /// Returns whether splice(2) into an empty pipe, whose result is `filled`, has stopped where recvmsg(2) has to
    /// continue: at urgent data, or in kernel TLS at a record without bytes of the session.
    pub fn is_splice_stopped(self, filled: &io::Result<usize>) -> bool {
        if let Framing::KernelTls(tls) = self.framing {
            return tls.is_splice_stopped(filled);
        }
        // The pipe is empty, so EAGAIN is about the socket alone.
        let is_empty =
            filled.as_ref().map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |read| *read == 0);
        is_empty && has_unread(self.stream)
    }

    /// Ready when a read can make progress. Only one task reads from a connection, so the larger futures of tokio,
    /// which several tasks can await, are not needed.
    ///
    /// # Errors
    /// The runtime shuts down.
    pub fn poll_readable(self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_read_from_socket() { self.stream.poll_read_ready(cx) } else { Poll::Ready(Ok(())) }
    }

    /// Appends up to `most` bytes to `bytes`, for code that does not handle the framing of sections; 0 is the end of
    /// the stream. `most` is at most the size of a plain read.
    ///
    /// # Errors
    /// As read(2), also `WouldBlock`.
    pub fn try_read(self, bytes: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        // Reads into the buffer of the thread, because most handshakes are far shorter than `most`.
        with(|scratch| {
            let scratch = &mut scratch[..most];
            let read = match self.framing.tls() {
                None => self.stream.try_read(scratch)?,
                Some(tls) => tls.read(self.stream, scratch)?,
            };
            bytes.extend_from_slice(&scratch[..read]);
            Ok(read)
        })
    }

    /// Waits until bytes or the end of the stream can be read, and does not consume them. Returns whether the stream
    /// has ended.
    ///
    /// # Errors
    /// As read(2).
    pub fn peek_end(self) -> impl Future<Output = io::Result<bool>> {
        poll_fn(move |cx| self.poll_peek_end(cx))
    }

    fn poll_peek_end(self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Some(tls) = self.framing.tls() else {
            let mut byte = [0];
            return self.stream.poll_peek(cx, &mut ReadBuf::new(&mut byte)).map_ok(|count| count == 0);
        };
        while !tls.is_decided() {
            ready!(self.poll_readable(cx))?;
            match tls.read_records(self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => other?,
            }
        }
        Poll::Ready(Ok(tls.is_at_end()))
    }

    /// Writes all of `bytes`, for code that does not handle the framing of sections.
    ///
    /// # Errors
    /// As write(2).
    pub async fn write_all(self, bytes: &[u8]) -> io::Result<()> {
        match self.framing.tls() {
            Some(tls) => write_all(self.stream, &tls.seal(bytes)?).await,
            None => write_all(self.stream, bytes).await,
        }
    }
}

impl<'a> Framing<'a> {
    /// Returns the cipher if all bytes are in records.
    pub const fn records(self) -> Option<&'a RecordCipher> {
        match self {
            Self::Records(cipher) | Self::ReusableRecords(cipher) => Some(cipher),
            Self::Raw | Self::Chunks(_) | Self::Tls(_) | Self::KernelTls(_) => None,
        }
    }

    /// Returns the cipher for the record that ends the chunks; `None` for other framings.
    pub const fn chunks(self) -> Option<&'a RecordCipher> {
        match self {
            Self::Chunks(cipher) => Some(cipher),
            Self::Raw | Self::Records(_) | Self::ReusableRecords(_) | Self::Tls(_) | Self::KernelTls(_) => None,
        }
    }

    /// Returns the cipher if this process encrypts and decrypts the TLS records.
    pub const fn tls(self) -> Option<&'a TlsCipher> {
        match self {
            Self::Tls(cipher) => Some(cipher),
            Self::Raw | Self::Records(_) | Self::ReusableRecords(_) | Self::Chunks(_) | Self::KernelTls(_) => None,
        }
    }

    /// Returns whether all bytes are in TLS, in this process or in the kernel.
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::Tls(_) | Self::KernelTls(_))
    }

    /// Returns whether this process encrypts or decrypts the bytes of the session, which excludes splice(2).
    pub const fn is_encrypted(self) -> bool {
        self.records().is_some() || self.tls().is_some()
    }

    /// Returns whether the connection carries the bytes of the session without framing.
    pub const fn is_raw(self) -> bool {
        matches!(self, Self::Raw)
    }

    /// Returns whether the bytes of the session are written to the socket without framing by this process.
    pub const fn is_written_raw(self) -> bool {
        matches!(self, Self::Raw | Self::KernelTls(_))
    }

    /// Returns whether the connection stays open after the session, so that the framing and not FIN ends the stream.
    pub const fn is_reusable(self) -> bool {
        matches!(self, Self::ReusableRecords(_) | Self::Chunks(_))
    }

    /// Returns the bytes that end a stream of `bytes` payload bytes, before FIN; `None` if the framing has none. For
    /// kernel TLS, [`KernelTls::send_end`] sends the end.
    pub fn end_of_stream(self, bytes: u64) -> Option<Vec<u8>> {
        match self {
            Self::Raw | Self::KernelTls(_) => None,
            Self::Records(cipher) | Self::ReusableRecords(cipher) => Some(cipher.end_record()),
            Self::Chunks(cipher) => {
                Some([&chunk::header(0)[..], &cipher.seal_all(&chunk::end_plaintext(bytes))].concat())
            }
            Self::Tls(cipher) => Some(cipher.end()),
        }
    }

    /// Counts the `bytes` bytes that one call has written to the socket.
    ///
    /// # Errors
    /// As [`KernelTls::on_sent`].
    pub fn on_sent(self, bytes: usize) -> io::Result<()> {
        if let Self::KernelTls(tls) = self { tls.on_sent(bytes) } else { Ok(()) }
    }

    /// Returns the framed bytes of `payload`, which is not empty.
    ///
    /// # Errors
    /// As [`TlsCipher::seal`].
    pub fn frame(self, payload: Vec<u8>) -> io::Result<Vec<u8>> {
        Ok(match self {
            Self::Raw | Self::KernelTls(_) => payload,
            Self::Records(cipher) | Self::ReusableRecords(cipher) => cipher.seal_all(&payload),
            Self::Chunks(_) => [&chunk::header(payload.len())[..], &payload].concat(),
            Self::Tls(cipher) => cipher.seal(&payload)?,
        })
    }
}

/// The unsent part of the header of a chunk that is spliced; empty for a section without chunks.
pub struct ChunkHeader {
    bytes: [u8; chunk::HEADER_LENGTH],
    sent: u8,
}

impl ChunkHeader {
    /// Creates the header to send from `header`, which is `None` for a section without chunks.
    pub fn new(header: Option<[u8; chunk::HEADER_LENGTH]>) -> Self {
        let sent = if header.is_some() { 0 } else { chunk::HEADER_LENGTH as u8 };
        Self { bytes: header.unwrap_or_default(), sent }
    }

    /// Returns the bytes that have not been sent.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[usize::from(self.sent)..]
    }

    /// Records that `bytes` bytes were sent.
    pub const fn on_sent(&mut self, bytes: usize) {
        self.sent += bytes as u8;
    }
}

/// Reads the header of the next chunk, or the record that ends the chunks. Returns whether the stream has ended.
///
/// # Errors
/// As read(2), also `WouldBlock`; `ConnectionReset` for a truncated stream; `InvalidData` for an altered stream.
pub fn read_chunk_boundary(reader: &mut ChunkReader, from: &TcpStream, cipher: &RecordCipher) -> io::Result<bool> {
    let missing = reader.missing_header();
    if missing > 0 {
        let mut header = [0; chunk::HEADER_LENGTH];
        let header = &mut header[..missing];
        let read = read_once(from, missing, || (&*SockRef::from(from)).read(header))?;
        if read == 0 {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        return reader.on_header(&header[..read]).map(|()| false).map_err(invalid);
    }
    cipher.expect_record(chunk::END_LENGTH);
    let Some(end) = cipher.read(from)? else { return Err(io::ErrorKind::WouldBlock.into()) };
    reader.check_end(&end.record[end.plaintext]).map_err(invalid)?;
    Ok(true)
}

/// Writes all bytes through a shared reference.
///
/// # Errors
/// As write(2).
pub async fn write_all(stream: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    // tokio does not report a connection as writable directly after its registration on this thread, for example a
    // connection from a pool, so the first send does not wait.
    let written = match SockRef::from(stream).send(bytes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        written => written?,
    };
    let mut rest = &bytes[written..];
    while !rest.is_empty() {
        stream.writable().await?;
        match stream.try_write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Converts a protocol error into the I/O error of an altered stream.
pub fn invalid(error: ekiden_proto::wire::WireError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ekiden_proto::direction::Direction;
    use ekiden_proto::event::EndReason;
    use ekiden_testing::TEST_TIMEOUT;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::*;
    use crate::pump::{FlowStats, IdleTimeouts, PendingAnswer, PipePool, PumpParams, run, section_ciphers};
    use crate::testing::tcp_pair;

    type MakeEnd<'a> = &'a dyn Fn(&RecordCipher) -> Vec<u8>;

    /// Returns the bytes that the server receives from a client's stream in chunks, and the end reason of the session.
    /// `end` builds the end of the stream; with `None` the client sends a FIN instead. The client closes after the end
    /// of its stream.
    async fn pump(payload: &[&[u8]], end: Option<MakeEnd<'_>>) -> (Vec<u8>, EndReason) {
        let (theirs, ours) = section_ciphers();
        let (near, mut peer) = tcp_pair().await;
        let (beyond, mut server) = tcp_pair().await;
        let time_limit = Duration::from_secs(60);
        let params = PumpParams {
            client: Endpoint { stream: &near, framing: Framing::Chunks(&ours) },
            server: Endpoint::plain(&beyond),
            early: Vec::new(),
            stats: &FlowStats::new(Rc::new(())),
            pipes: &PipePool::new(1),
            idle_timeouts: IdleTimeouts { idle: time_limit, half_closed: time_limit },
        };
        let others = async {
            for chunk in payload {
                peer.write_all(&[&chunk::header(chunk.len())[..], chunk].concat()).await.unwrap();
            }
            match end {
                Some(end) => peer.write_all(&end(&theirs)).await.unwrap(),
                None => peer.shutdown().await.unwrap(),
            }
            let mut received = Vec::new();
            // A reset is an end of the stream, too.
            let _ = server.read_to_end(&mut received).await;
            drop(server);
            received
        };
        let session = async {
            let end = run(params, None::<PendingAnswer<'_, ()>>).await;
            // The session closes its sockets at its end.
            let _ = SockRef::from(&beyond).shutdown(std::net::Shutdown::Both);
            end.unwrap()
        };
        timeout(TEST_TIMEOUT, async { tokio::join!(others, session) }).await.expect("an end of the session")
    }

    fn end_after(bytes: u64) -> impl Fn(&RecordCipher) -> Vec<u8> {
        move |theirs| [&chunk::header(0)[..], &theirs.seal_all(&chunk::end_plaintext(bytes))].concat()
    }

    #[tokio::test]
    async fn chunks_of_all_sizes_are_one_stream() {
        // Larger than the size from which bytes are spliced.
        let large = vec![7; 300_000];
        for payload in [&[][..], &[&b"a"[..]], &[b"ab", &large, b"c"], &[&large, &large]] {
            let whole = payload.concat();
            let (received, end) = pump(payload, Some(&end_after(whole.len() as u64))).await;
            assert!(received == whole, "{} bytes", whole.len());
            assert_eq!(end, EndReason::Finished);
        }
    }

    #[tokio::test]
    async fn wrong_length_and_forged_end_are_reported_as_altered() {
        for bytes in [0, 2, 4] {
            let (received, end) = pump(&[b"abc"], Some(&end_after(bytes))).await;
            assert_eq!((&received[..], end), (&b"abc"[..], EndReason::Altered(Direction::Up)), "{bytes}");
        }
        let forged = |_: &RecordCipher| [&chunk::header(0)[..], &[0, 24], &[7; 24]].concat();
        assert_eq!(pump(&[b"abc"], Some(&forged)).await.1, EndReason::Altered(Direction::Up));
        let too_long = |_: &RecordCipher| (chunk::MAX_LENGTH + 1).to_be_bytes().to_vec();
        assert_eq!(pump(&[b"abc"], Some(&too_long)).await.1, EndReason::Altered(Direction::Up));
    }

    #[tokio::test]
    async fn truncated_stream_is_reset() {
        assert_eq!(pump(&[b"abc"], None).await, (b"abc".to_vec(), EndReason::ResetByClient));
    }
}
