//! Kernel TLS: the kernel encrypts and decrypts the records, so splice(2) can move the bytes of a session.
//!
//! rustls performs the handshake, and the kernel takes over between two records. Ends and errors of a stream are the
//! same as in [`super::tls`]. The kernel does not process handshake messages, so a key update by the peer ends the
//! session.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, pending};
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use ekiden_sys::ktls::{self, Cipher, NONCE_LENGTH, Received, TrafficKeys, Version};
use ekiden_sys::poll::is_writable;
use ekiden_sys::tcp_info::is_closed;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio_rustls::rustls::{
    CipherSuite, ConnectionTrafficSecrets, ExtractedSecrets, ProtocolVersion, SupportedCipherSuite,
};

use super::tls::TRUNCATED;

/// Maximum plaintext of a record, in bytes (RFC 8446, 5.1).
const MAX_RECORD: u64 = 1 << 14;

/// Overhead of a record in bytes, for the confidentiality limit: the blocks of its tag and of its end.
const RECORD_COST: u64 = 32;

/// Minimum size of the send buffer, in bytes. The kernel starts a segment of up to 64 KiB whenever the buffer has room
/// (`tcp_sendmsg_locked`), so free room of a third of this size is enough for the rest of a record and an alert.
const MIN_SEND_BUFFER: usize = 32 * 1024;

/// Maximum number of consecutive records without data. rustls has the same limit.
const MAX_EMPTY_RECORDS: u32 = 32;

/// The alert that ends a direction: level and description (RFC 8446, 6.1).
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// The description of an alert that precedes `close_notify` (RFC 8446, 6.1).
const USER_CANCELED: u8 = 90;

/// The detail of the log line for a client that sends a handshake message.
const NEW_KEYS: &str = "the client asked for new TLS keys, which kernel TLS cannot change";

/// The detail of the log line for a client that has received the most bytes of a key.
const USED_UP: &str = "the TLS keys are used up, and kernel TLS cannot change them";

/// The records of one connection, in the kernel.
pub struct KernelTls {
    stream: Rc<TcpStream>,
    /// Completes when a record is invalid.
    record_error: RefCell<Pin<Box<dyn Future<Output = io::Error>>>>,
    /// Number of further bytes that these keys may protect.
    bytes_left: Cell<u64>,
    /// Whether the alert that ends the sending direction has been sent.
    has_ended: Cell<bool>,
    /// Whether the last splice(2) has failed with an error of a record.
    is_refused: Cell<bool>,
    /// The cause of an end of the stream that TCP does not report.
    fault: Cell<Option<&'static str>>,
}

impl KernelTls {
    /// Returns whether the kernel can take over a connection with this cipher suite.
    pub fn is_possible(stream: &TcpStream, suite: SupportedCipherSuite) -> bool {
        let (version, cipher) = (version_of(suite), cipher_of(suite.suite()));
        SockRef::from(stream).send_buffer_size().is_ok_and(|size| size >= MIN_SEND_BUFFER)
            && ktls::attach(stream.as_fd()).is_ok()
            && cipher.is_some_and(|cipher| is_available(version, cipher))
    }

    /// Passes the keys to the kernel.
    ///
    /// # Errors
    /// The error of the kernel. The connection cannot be used any more.
    pub fn start(stream: Rc<TcpStream>, suite: SupportedCipherSuite, secrets: &ExtractedSecrets) -> io::Result<Self> {
        let mut send = traffic_keys(suite, &secrets.tx)?;
        if send.version == Version::Tls12 && send.cipher != Cipher::ChaCha20Poly1305 {
            // The kernel increments the explicit nonce from this value, and rustls has combined the same value with its
            // record numbers. With the high bit inverted, the kernel repeats no nonce of rustls.
            send.iv[NONCE_LENGTH - 8] ^= 0x80;
        }
        ktls::set_send_keys(stream.as_fd(), &send)?;
        ktls::set_receive_keys(stream.as_fd(), &traffic_keys(suite, &secrets.rx)?)?;
        // RFC 8446, 5.5 counts full records, because the limit of AES-GCM is a number of encrypted blocks: smaller
        // records use less of it.
        let records_left = confidentiality_limit(suite).saturating_sub(send.sequence);
        Ok(Self::new(stream, records_left.saturating_mul(MAX_RECORD)))
    }

    fn new(stream: Rc<TcpStream>, bytes_left: u64) -> Self {
        Self {
            record_error: RefCell::new(Box::pin(wait_record_error(Rc::clone(&stream)))),
            stream,
            bytes_left: Cell::new(bytes_left),
            has_ended: Cell::default(),
            is_refused: Cell::default(),
            fault: Cell::default(),
        }
    }

    /// The cause of an end of the stream that TCP does not report.
    pub fn fault(&self) -> Option<&'static str> {
        self.fault.get()
    }

    /// Returns whether splice(2), whose result is `filled`, has stopped where [`Self::read`] has to continue: at an
    /// empty record, at a record of another type, or at an error of a record.
    pub fn is_splice_stopped(&self, filled: &io::Result<usize>) -> bool {
        self.is_refused.set(filled.as_ref().is_err_and(ktls::is_record_error));
        self.is_refused.get() || matches!(filled, Ok(0))
    }

    /// Reads bytes of the stream; 0 is the end of the peer's direction.
    ///
    /// # Errors
    /// As read(2), also `WouldBlock`; `ConnectionReset` for a truncated stream; `InvalidData` for an altered stream;
    /// `Unsupported` for a key update.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        for _ in 0..=MAX_EMPTY_RECORDS {
            match self.receive(buffer)? {
                Received::Data(0) => {}
                Received::Data(read) => return Ok(read),
                Received::Control { kind: ktls::ALERT, length } => {
                    match read_description(&self.stream, &buffer[..length])? {
                        Some(description) if description == CLOSE_NOTIFY[1] => return Ok(0),
                        Some(USER_CANCELED) => {}
                        _ => break,
                    }
                }
                Received::Control { .. } => return Err(self.fail(NEW_KEYS, io::ErrorKind::Unsupported)),
                Received::End => return Err(self.fail(TRUNCATED, io::ErrorKind::ConnectionReset)),
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    /// Ready when a record is invalid.
    pub fn poll_record_error(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.record_error.borrow_mut().as_mut().poll(cx)
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let stream = &self.stream;
        let is_refused = self.is_refused.take();
        let received = stream.try_io(Interest::READABLE, || ktls::receive(stream.as_fd(), buffer));
        received.map_err(|error| {
            // splice(2) has either failed at a record of another type, which is read now, or has consumed the error of
            // a record, which epoll then does not report.
            let is_lost = is_refused && error.kind() == io::ErrorKind::WouldBlock;
            if is_lost || ktls::is_record_error(&error) { io::ErrorKind::InvalidData.into() } else { error }
        })
    }

    /// Counts the `bytes` bytes that one call has written, and the overhead of their records.
    ///
    /// # Errors
    /// The keys have reached their limit.
    pub fn on_sent(&self, bytes: usize) -> io::Result<()> {
        let bytes = bytes as u64;
        let left = self.bytes_left.get().checked_sub(bytes + (bytes / MAX_RECORD + 1) * RECORD_COST);
        self.bytes_left.set(left.ok_or_else(|| self.fail(USED_UP, io::ErrorKind::ConnectionAborted))?);
        Ok(())
    }

    /// Sends the alert that ends this direction, unless it has been sent.
    ///
    /// # Errors
    /// As write(2), also `WouldBlock`.
    pub fn send_end(&self) -> io::Result<()> {
        let stream = &self.stream;
        if self.has_ended.get() {
            return Ok(());
        }
        stream.try_io(Interest::WRITABLE, || {
            // The kernel accepts more bytes than the send buffer has room for, and close(2) discards the rest of their
            // record. When the socket is writable, the room is enough for the rest and the alert.
            if !is_writable(stream.as_fd())? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            ktls::send_alert(stream.as_fd(), CLOSE_NOTIFY)
        })?;
        self.has_ended.set(true);
        Ok(())
    }

    fn fail(&self, fault: &'static str, kind: io::ErrorKind) -> io::Error {
        self.fault.set(Some(fault));
        kind.into()
    }
}

impl fmt::Debug for KernelTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KernelTls")
    }
}

/// Completes when the kernel has rejected the header of a record. epoll then reports an error, but not that the socket
/// is readable.
async fn wait_record_error(stream: Rc<TcpStream>) -> io::Error {
    let _ = stream.ready(Interest::ERROR).await;
    if is_closed(stream.as_fd()) {
        // A reset, which the next read returns.
        pending::<()>().await;
    }
    io::ErrorKind::InvalidData.into()
}

/// Returns the description in an alert of which `alert_start` has been read; `None` if the record is not a valid alert.
fn read_description(stream: &TcpStream, alert_start: &[u8]) -> io::Result<Option<u8>> {
    let mut rest = [0; 2];
    Ok(match alert_start {
        // A flow without quota reads one byte.
        [_] => match ktls::receive(stream.as_fd(), &mut rest)? {
            Received::Control { kind: ktls::ALERT, length: 1 } => Some(rest[0]),
            _ => None,
        },
        [_, description] => Some(*description),
        _ => None,
    })
}

/// Returns whether the kernel supports the cipher. The result is cached, because it does not change.
fn is_available(version: Version, cipher: Cipher) -> bool {
    static ANSWERS: [OnceLock<bool>; 6] = [const { OnceLock::new() }; 6];
    let index = usize::from(version == Version::Tls13) * 3
        + match cipher {
            Cipher::Aes128Gcm => 0,
            Cipher::Aes256Gcm => 1,
            Cipher::ChaCha20Poly1305 => 2,
        };
    *ANSWERS[index].get_or_init(|| ktls::check_available(version, cipher).is_ok())
}

fn version_of(suite: SupportedCipherSuite) -> Version {
    if suite.version().version == ProtocolVersion::TLSv1_2 { Version::Tls12 } else { Version::Tls13 }
}

/// Returns the cipher of a suite; `None` for a suite that ring does not support.
fn cipher_of(suite: CipherSuite) -> Option<Cipher> {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => Some(Cipher::Aes128Gcm),
        CipherSuite::TLS13_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => Some(Cipher::Aes256Gcm),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => Some(Cipher::ChaCha20Poly1305),
        _ => None,
    }
}

/// Returns the maximum number of records that a key of the suite may protect.
fn confidentiality_limit(suite: SupportedCipherSuite) -> u64 {
    match suite {
        SupportedCipherSuite::Tls12(suite) => suite.common.confidentiality_limit,
        SupportedCipherSuite::Tls13(suite) => suite.common.confidentiality_limit,
    }
}

/// Returns the keys of one direction in the form that the kernel expects.
fn traffic_keys(
    suite: SupportedCipherSuite,
    direction: &(u64, ConnectionTrafficSecrets),
) -> io::Result<TrafficKeys<'_>> {
    let (sequence, secrets) = direction;
    let (cipher, key, iv) = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (Cipher::ChaCha20Poly1305, key, iv),
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    let iv = iv.as_ref().try_into().expect("invariant: nonces have 12 bytes");
    Ok(TrafficKeys { version: version_of(suite), cipher, key: key.as_ref(), iv, sequence: *sequence })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tcp_pair;

    #[tokio::test]
    async fn keys_protect_no_more_bytes_than_the_cipher_allows() {
        let (near, _far) = tcp_pair().await;
        let tls = KernelTls::new(Rc::new(near), 20_000 + 1 + 3 * RECORD_COST);
        // 20,000 bytes cost two records, and one byte costs one record.
        tls.on_sent(20_000).unwrap();
        tls.on_sent(1).unwrap();
        assert_eq!(tls.fault(), None);
        assert_eq!(tls.on_sent(1).unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(tls.fault(), Some(USED_UP));
    }
}
