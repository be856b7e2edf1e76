//! Kernel TLS: the kernel encrypts and decrypts the records of a connection (Documentation/networking/tls.rst of
//! Linux).

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libc::c_int;
use zeroize::Zeroizing;

use crate::option::{get, set_bytes};

// Not in every libc: linux/tls.h.
const TLS_TX: c_int = 1;
const TLS_RX: c_int = 2;
const TLS_RX_EXPECT_NO_PAD: c_int = 4;
const TLS_SET_RECORD_TYPE: c_int = 1;

/// The type of a record with an alert (RFC 8446, B.1).
pub const ALERT: u8 = 21;

/// The type of a record with bytes of the stream (RFC 8446, B.1).
const APPLICATION_DATA: u8 = 23;

/// Length of a nonce, in bytes.
pub const NONCE_LENGTH: usize = 12;

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Version {
    /// TLS 1.2 (RFC 5246).
    Tls12 = 0x0303,
    /// TLS 1.3 (RFC 8446).
    Tls13 = 0x0304,
}

/// A cipher, by its number in linux/tls.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Cipher {
    /// AES-GCM with keys of 128 bits.
    Aes128Gcm = 51,
    /// AES-GCM with keys of 256 bits.
    Aes256Gcm = 52,
    /// ChaCha20 with Poly1305 (RFC 8439).
    ChaCha20Poly1305 = 54,
}

impl Cipher {
    /// Returns the length of a key, in bytes.
    #[must_use]
    pub const fn key_length(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }
}

/// The keys of one direction.
pub struct TrafficKeys<'a> {
    /// The version of the protocol.
    pub version: Version,
    /// The cipher of the suite.
    pub cipher: Cipher,
    /// The key, with the length [`Cipher::key_length`].
    pub key: &'a [u8],
    /// The static part of the nonces. For AES-GCM in TLS 1.2: the salt and the first explicit nonce, which the kernel
    /// increments for each record.
    pub iv: [u8; NONCE_LENGTH],
    /// The number of the next record.
    pub sequence: u64,
}

impl TrafficKeys<'_> {
    /// Encodes the structure of linux/tls.h: version, cipher, IV, key, salt, record number.
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let salt_length = if self.cipher == Cipher::ChaCha20Poly1305 { 0 } else { 4 };
        let (salt, iv) = self.iv.split_at(salt_length);
        let (version, cipher) = ((self.version as u16).to_ne_bytes(), (self.cipher as u16).to_ne_bytes());
        Zeroizing::new([&version[..], &cipher, iv, self.key, salt, &self.sequence.to_be_bytes()].concat())
    }
}

/// Enables kernel TLS on a connection (`TCP_ULP`). Without keys, reads and writes are unchanged.
///
/// # Errors
/// The kernel's error: `ENOENT` without kernel TLS, `ENOTCONN` unless both directions of the connection are open.
pub fn attach(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_bytes(socket, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls")
}

/// Sets the send keys: bytes written from now on are sent in records with these keys.
///
/// # Errors
/// The kernel's error: `ENOENT` or `EINVAL` if it does not have the cipher.
pub fn set_send_keys(socket: BorrowedFd<'_>, keys: &TrafficKeys<'_>) -> io::Result<()> {
    set_bytes(socket, libc::SOL_TLS, TLS_TX, &keys.to_bytes())
}

/// Sets the receive keys. From now on the socket must be read with [`receive`].
///
/// # Errors
/// As [`set_send_keys`].
pub fn set_receive_keys(socket: BorrowedFd<'_>, keys: &TrafficKeys<'_>) -> io::Result<()> {
    set_bytes(socket, libc::SOL_TLS, TLS_RX, &keys.to_bytes())
}

/// Tests whether the kernel supports a version and a cipher in both directions, on a temporary loopback connection.
///
/// # Errors
/// The kernel's error: `ENOENT` without kernel TLS or without the cipher, `ENOPROTOOPT` before Linux 6.0.
pub fn check_available(version: Version, cipher: Cipher) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let socket = stream.as_fd();
    attach(socket)?;
    let key = &[0; 32][..cipher.key_length()];
    let keys = TrafficKeys { version, cipher, key, iv: [0; NONCE_LENGTH], sequence: 0 };
    set_send_keys(socket, &keys)?;
    set_receive_keys(socket, &keys)?;
    // Kernels without this option may splice only the first part of a record that arrived in many segments, and drop
    // the rest (tls_sw_splice_read() of Linux 5.19).
    match get::<c_int>(socket, libc::SOL_TLS, TLS_RX_EXPECT_NO_PAD) {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Err(error),
        _ => Ok(()),
    }
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Number of received bytes of the stream.
    Data(usize),
    /// One record of another type (RFC 8446, B.1).
    Control {
        /// The type of the record.
        kind: u8,
        /// The number of received bytes.
        length: usize,
    },
    /// FIN: no record follows.
    End,
}

/// Reads once (recvmsg(2)): bytes of the stream, or one record of another type.
///
/// # Errors
/// The kernel's error: EAGAIN without a complete record, and those of [`is_record_error`].
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = RecordType::new(0);
    let mut message = message(&mut part, &mut control);
    // SAFETY: `message` points to one part and one control message of the lengths it says, and both outlive the call.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let length = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    Ok(match control.kind[0] {
        _ if message.msg_controllen == 0 => Received::End,
        APPLICATION_DATA => Received::Data(length),
        kind => Received::Control { kind, length },
    })
}

/// Sends an alert, which consists of level and description (RFC 8446, 6), after all bytes that were written before
/// (sendmsg(2)).
///
/// # Errors
/// The kernel's error: EAGAIN if the send buffer is full.
pub fn send_alert(socket: BorrowedFd<'_>, mut alert: [u8; 2]) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: alert.as_mut_ptr().cast(), iov_len: alert.len() };
    let mut control = RecordType::new(ALERT);
    let message = message(&mut part, &mut control);
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: `message` points to one part and one control message of the lengths it says, and both outlive the call.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns whether a read has failed because the stream is not TLS or was modified: `EBADMSG` for a wrong tag, `EINVAL`
/// and `EMSGSIZE` for a wrong header.
#[must_use]
pub fn is_record_error(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBADMSG | libc::EINVAL | libc::EMSGSIZE))
}

/// A control message with the type of a record (cmsg(3)).
#[repr(C)]
struct RecordType {
    header: libc::cmsghdr,
    /// The record type, and padding.
    kind: [u8; size_of::<usize>()],
}

impl RecordType {
    fn new(kind: u8) -> Self {
        // SAFETY: a header is numbers, and all may be zero.
        let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
        header.cmsg_len = (size_of::<libc::cmsghdr>() + 1) as _;
        header.cmsg_level = libc::SOL_TLS;
        header.cmsg_type = TLS_SET_RECORD_TYPE;
        let mut padded = [0; size_of::<usize>()];
        padded[0] = kind;
        Self { header, kind: padded }
    }
}

/// Returns a message header that points to `part` and `control`.
fn message(part: &mut libc::iovec, control: &mut RecordType) -> libc::msghdr {
    // SAFETY: a message header is pointers and numbers; all zero is one without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = std::ptr::from_mut(control).cast();
    message.msg_controllen = size_of::<RecordType>() as _;
    message
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::Shutdown;

    use ekiden_testing::{eventually, skipped, tcp_pair};

    use super::*;
    use crate::splice::Pipe;

    const CIPHERS: [Cipher; 3] = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];

    /// Returns a connection whose second end has these keys for receiving. The first end has no keys yet.
    fn pair(keys: &TrafficKeys<'_>) -> (TcpStream, TcpStream) {
        let (near, far) = tcp_pair();
        attach(far.as_fd()).unwrap();
        set_receive_keys(far.as_fd(), keys).unwrap();
        (near, far)
    }

    /// Whether the kernel has no TLS. In this case the function prints the reason, and the test must return.
    fn missing() -> bool {
        let missing = check_available(Version::Tls13, Cipher::Aes128Gcm);
        if let Err(error) = &missing {
            skipped(format_args!("no kernel TLS: {error}"));
        }
        missing.is_err()
    }

    #[test]
    fn data_and_alerts_are_distinguished() {
        if missing() {
            return;
        }
        for version in [Version::Tls12, Version::Tls13] {
            for cipher in CIPHERS {
                if check_available(version, cipher).is_err() {
                    assert_eq!(cipher, Cipher::ChaCha20Poly1305, "only ChaCha20-Poly1305 may be missing");
                    continue;
                }
                let key = [7; 32];
                let key = &key[..cipher.key_length()];
                let keys = TrafficKeys { version, cipher, key, iv: [9; NONCE_LENGTH], sequence: 3 };
                let (mut near, far) = pair(&keys);
                attach(near.as_fd()).unwrap();
                set_send_keys(near.as_fd(), &keys).unwrap();
                near.write_all(b"bytes").unwrap();
                let mut buffer = [0; 64];
                assert_eq!(receive(far.as_fd(), &mut buffer).unwrap(), Received::Data(5), "{version:?} {cipher:?}");
                assert_eq!(&buffer[..5], b"bytes");

                near.write_all(b"pipe").unwrap();
                send_alert(near.as_fd(), [1, 0]).unwrap();
                // Waits until the record has arrived, and consumes nothing.
                far.peek(&mut [0]).unwrap();
                let pipe = Pipe::new().unwrap();
                assert_eq!(pipe.fill(far.as_fd(), 4).unwrap(), 4);
                let refused = eventually("the arrival of the alert", || {
                    Some(pipe.fill(far.as_fd(), 4).unwrap_err()).filter(|error| error.kind() != ErrorKind::WouldBlock)
                });
                assert_eq!(refused.kind(), ErrorKind::InvalidInput);
                let control = Received::Control { kind: ALERT, length: 1 };
                assert_eq!(receive(far.as_fd(), &mut buffer[..1]).unwrap(), control);
                assert_eq!(receive(far.as_fd(), &mut buffer[1..]).unwrap(), control);
                assert_eq!(buffer[..2], [1, 0]);
                near.shutdown(Shutdown::Write).unwrap();
                assert_eq!(receive(far.as_fd(), &mut buffer).unwrap(), Received::End);
            }
        }
    }

    #[test]
    fn a_stream_that_is_no_tls_is_a_record_error() {
        if missing() {
            return;
        }
        let (version, cipher) = (Version::Tls13, Cipher::Aes128Gcm);
        let keys = TrafficKeys { version, cipher, key: &[7; 16], iv: [9; NONCE_LENGTH], sequence: 0 };
        // A wrong tag, a wrong version, and a length beyond the limit.
        for record in [[&[23, 3, 3, 0, 32][..], &[0; 32]], [&[23, 1, 1, 0, 32], &[0; 32]], [&[23, 3, 3, 255, 255], &[]]]
        {
            let (mut near, far) = pair(&keys);
            near.write_all(&record.concat()).unwrap();
            let error = receive(far.as_fd(), &mut [0; 64]).unwrap_err();
            assert!(is_record_error(&error), "{record:?}: {error}");
        }
    }

    #[test]
    fn connection_without_keys_transfers_plaintext() {
        if missing() {
            return;
        }
        let (mut near, mut far) = tcp_pair();
        attach(near.as_fd()).unwrap();
        near.write_all(b"ping").unwrap();
        far.read_exact(&mut [0; 4]).unwrap();
        far.write_all(b"pong").unwrap();
        drop(far);
        let mut answer = Vec::new();
        near.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"pong");
    }
}
