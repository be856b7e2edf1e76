//! A section in TLS (RFC 8446, RFC 5246), of which this relay is the server.
//!
//! The peer ends its direction with a `close_notify` alert. FIN without that alert counts as a reset, because every host on the path
//! can send FIN.

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::fmt;
use std::io::{self, Cursor, Read, Write};
use std::rc::Rc;
use std::sync::Arc;

use ekiden_proto::wire::proxy_protocol::ClientTls;
use ekiden_proto::wire::x509::common_name;
use tokio::net::TcpStream;
use tokio_rustls::rustls::{self, ServerConfig, ServerConnection, SupportedCipherSuite};

use super::framing::{Framing, write_all};
use super::kernel_tls::KernelTls;

/// Largest read from the socket, in bytes.
const MAX_READ: usize = 64 * 1024;

/// The detail of the log line for a client that sends FIN without `close_notify`.
pub const TRUNCATED: &str = "the client closed TLS without close_notify";

/// The cipher of one connection, and the bytes that have been read from its socket and not yet passed on.
pub struct TlsCipher {
    /// `None` since the kernel has the keys.
    connection: RefCell<Option<ServerConnection>>,
    /// The suite; `None` before the end of the handshake.
    suite: Cell<Option<SupportedCipherSuite>>,
    /// The records since the kernel has the keys.
    kernel: OnceCell<KernelTls>,
    /// Where the bytes from the socket so far have ended.
    position: Cell<RecordPosition>,
    /// Bytes from the socket that rustls has not taken: it takes 4 KiB at once, which are few for a read(2).
    undecrypted: RefCell<Cursor<Vec<u8>>>,
    /// Bytes of decrypted data that wait to be read.
    buffered: Cell<usize>,
    /// Whether the peer has sent `close_notify`.
    peer_closed: Cell<bool>,
    /// Whether the peer has sent FIN without `close_notify`.
    truncated: Cell<bool>,
}

/// Why a handshake failed.
#[derive(Debug)]
pub enum TlsError {
    /// The stream ended (`UnexpectedEof`) or failed.
    Gone(io::ErrorKind),
    /// The peer sent a message that is no TLS, or that this relay does not accept.
    Protocol(rustls::Error),
}

impl TlsCipher {
    /// Runs the handshake on `stream`.
    ///
    /// # Errors
    /// [`TlsError`]; the peer has received an alert.
    pub async fn accept(stream: &TcpStream, config: Arc<ServerConfig>) -> Result<Self, TlsError> {
        let mut connection = ServerConnection::new(config).map_err(TlsError::Protocol)?;
        // `seal` empties the buffer at each call.
        connection.set_buffer_limit(None);
        let cipher = Self {
            connection: RefCell::new(Some(connection)),
            suite: Cell::default(),
            kernel: OnceCell::new(),
            position: Cell::default(),
            undecrypted: RefCell::default(),
            buffered: Cell::default(),
            peer_closed: Cell::default(),
            truncated: Cell::default(),
        };
        let gone = |error: io::Error| TlsError::Gone(error.kind());
        while cipher.connection().is_handshaking() {
            if !cipher.has_data() {
                stream.readable().await.map_err(gone)?;
            }
            let read = cipher.read_records(stream);
            let output = cipher.take_output();
            if let Err(error) = read {
                if error.kind() == io::ErrorKind::WouldBlock {
                    continue;
                }
                // An alert fits into an empty send buffer. If the buffer is full, the peer does not read alerts either.
                let _ = stream.try_write(&output);
                return Err(into_tls_error(error));
            }
            write_all(stream, &output).await.map_err(gone)?;
        }
        cipher.suite.set(cipher.connection().negotiated_cipher_suite());
        Ok(cipher)
    }

    /// Gives the keys to the kernel, if the kernel takes them and has to open the next byte of both directions. All that was sealed
    /// must have been sent.
    ///
    /// # Errors
    /// The connection cannot go on.
    pub fn try_enter_kernel(&self, stream: &Rc<TcpStream>) -> io::Result<()> {
        let Some(suite) = self.suite.get().filter(|_| self.is_between_records()) else { return Ok(()) };
        if !KernelTls::is_possible(stream, suite) {
            return Ok(());
        }
        let connection = self.connection.take().expect("invariant: the keys are given away once");
        let secrets = connection.dangerous_extract_secrets().map_err(io::Error::other)?;
        let _ = self.kernel.set(KernelTls::start(Rc::clone(stream), suite, &secrets)?);
        Ok(())
    }

    /// Whether all bytes from the socket have been read, the last of them ended a record, and nothing waits to be sent.
    fn is_between_records(&self) -> bool {
        let connection = &mut *self.connection();
        // An answer to new keys of the peer is queued until the next write.
        let is_flushed = matches!(connection.writer().write(&[]), Ok(0)) && !connection.wants_write();
        is_flushed && !self.has_data() && self.position.get().is_between_records()
    }

    /// Whether the kernel makes and opens the records.
    pub fn is_in_kernel(&self) -> bool {
        self.kernel.get().is_some()
    }

    /// The framing of the bytes of a session.
    pub fn framing(&self) -> Framing<'_> {
        self.kernel.get().map_or(Framing::Tls(self), Framing::KernelTls)
    }

    fn connection(&self) -> RefMut<'_, ServerConnection> {
        RefMut::map(self.connection.borrow_mut(), |connection| {
            connection.as_mut().expect("invariant: this process has the keys")
        })
    }

    /// Whether a read takes bytes that have been read from the socket before.
    pub fn has_data(&self) -> bool {
        self.is_decided() || !self.undecrypted.borrow().get_ref().is_empty()
    }

    /// Whether it is known that data, or the end of the peer's direction, is the next to be read.
    pub fn is_decided(&self) -> bool {
        self.buffered.get() > 0 || self.peer_closed.get()
    }

    /// Whether the peer has ended its direction, and all data before that has been read.
    pub fn is_at_end(&self) -> bool {
        self.peer_closed.get() && self.buffered.get() == 0
    }

    /// The cause of an end that is none of TCP.
    pub fn fault(&self) -> Option<&'static str> {
        self.kernel.get().map_or_else(|| self.truncated.get().then_some(TRUNCATED), KernelTls::fault)
    }

    /// Reads decrypted data; 0 is the end of the peer's direction.
    ///
    /// # Errors
    /// As read(2), also `WouldBlock`; `ConnectionReset` for a stream that was cut; `InvalidData` for a stream that was changed.
    pub fn read(&self, stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.is_decided() {
            self.read_records(stream)?;
        }
        if self.buffered.get() == 0 {
            return Ok(0);
        }
        let read = self.connection().reader().read(buffer)?;
        self.buffered.set(self.buffered.get() - read);
        Ok(read)
    }

    /// Decrypts records, and before reads from the socket if no bytes are left from the last time. There must be no decrypted data.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_records(&self, stream: &TcpStream) -> io::Result<()> {
        let mut undecrypted = self.undecrypted.borrow_mut();
        if undecrypted.get_ref().is_empty() {
            let mut bytes = Vec::with_capacity(MAX_READ);
            if stream.try_read_buf(&mut bytes)? == 0 {
                self.truncated.set(true);
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            self.position.set(self.position.get().after(&bytes));
            *undecrypted = Cursor::new(bytes);
        }
        let connection = &mut *self.connection();
        connection.read_tls(&mut *undecrypted)?;
        if undecrypted.position() == undecrypted.get_ref().len() as u64 {
            // An idle session holds no buffer.
            *undecrypted = Cursor::default();
        }
        let state =
            connection.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.buffered.set(state.plaintext_bytes_to_read());
        self.peer_closed.set(state.peer_has_closed());
        Ok(())
    }

    /// Encrypts `plaintext` in as many records as it needs.
    ///
    /// # Errors
    /// The keys are used up, and TLS 1.2 has no new ones.
    pub fn seal(&self, plaintext: &[u8]) -> io::Result<Vec<u8>> {
        self.connection().writer().write_all(plaintext)?;
        let sealed = self.take_output();
        // rustls drops data for which it has no keys, and sends `close_notify`. That would look like an orderly end.
        if sealed.len() < plaintext.len() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(sealed) }
    }

    /// The alert that ends this direction.
    pub fn end(&self) -> Vec<u8> {
        self.connection().send_close_notify();
        self.take_output()
    }

    /// Sends the alert that ends this direction, unless it has been sent or the socket is full.
    pub fn try_send_end(&self, stream: &TcpStream) {
        let _ = match self.kernel.get() {
            Some(kernel) => kernel.send_end(),
            None => stream.try_write(&self.end()).map(drop),
        };
    }

    /// The client's certificate in DER, which the handshake has verified; `None` if the client has sent none.
    pub fn client_certificate(&self) -> Option<Vec<u8>> {
        let connection = self.connection();
        connection.peer_certificates().and_then(|chain| chain.first()).map(|certificate| certificate.to_vec())
    }

    /// Whether the handshake has selected this protocol (RFC 7301).
    pub fn has_selected(&self, protocol: &[u8]) -> bool {
        self.connection().alpn_protocol() == Some(protocol)
    }

    /// The version of the protocol.
    pub fn version(&self) -> &'static str {
        match self.suite.get() {
            Some(SupportedCipherSuite::Tls12(_)) => "1.2",
            _ => "1.3",
        }
    }

    /// The name of the cipher suite.
    pub fn cipher_suite(&self) -> &'static str {
        self.suite.get().and_then(|suite| suite.suite().as_str()).unwrap_or("unknown")
    }

    /// The handshake as a PROXY header reports it to targets.
    pub fn client_tls(&self) -> ClientTls {
        let certificate = self.client_certificate();
        ClientTls {
            version: if self.version() == "1.2" { "TLSv1.2" } else { "TLSv1.3" },
            cipher: self.openssl_cipher_suite(),
            has_certificate: certificate.is_some(),
            common_name: certificate.as_deref().and_then(common_name).map(Box::from),
        }
    }

    /// The cipher suite in the words of OpenSSL (openssl-ciphers(1)), which the PROXY protocol uses.
    fn openssl_cipher_suite(&self) -> &'static str {
        use rustls::CipherSuite as Suite;
        match self.suite.get().map(|suite| suite.suite()) {
            Some(Suite::TLS13_AES_128_GCM_SHA256) => "TLS_AES_128_GCM_SHA256",
            Some(Suite::TLS13_AES_256_GCM_SHA384) => "TLS_AES_256_GCM_SHA384",
            Some(Suite::TLS13_CHACHA20_POLY1305_SHA256) => "TLS_CHACHA20_POLY1305_SHA256",
            Some(Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256) => "ECDHE-ECDSA-AES128-GCM-SHA256",
            Some(Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384) => "ECDHE-ECDSA-AES256-GCM-SHA384",
            Some(Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256) => "ECDHE-ECDSA-CHACHA20-POLY1305",
            Some(Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256) => "ECDHE-RSA-AES128-GCM-SHA256",
            Some(Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384) => "ECDHE-RSA-AES256-GCM-SHA384",
            Some(Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256) => "ECDHE-RSA-CHACHA20-POLY1305",
            // ring has no other suite.
            _ => "unknown",
        }
    }

    fn take_output(&self) -> Vec<u8> {
        let connection = &mut *self.connection();
        let mut output = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut output).expect("invariant: a Vec takes every byte");
        }
        output
    }
}

impl fmt::Debug for TlsCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsCipher")
    }
}

/// A position in a stream of records.
#[derive(Debug, Default, Clone, Copy)]
struct RecordPosition {
    /// The bytes of the header of the record (RFC 8446, 5.1) that have come, if it is not complete.
    header: usize,
    /// The high byte of the length, from the header that is not complete.
    high: u8,
    /// The bytes of the record behind its header that have not come.
    left: usize,
}

impl RecordPosition {
    /// The position after `bytes` more.
    fn after(mut self, mut bytes: &[u8]) -> Self {
        while let Some((&first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len());
                self.left -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            bytes = rest;
            match self.header {
                3 => self.high = first,
                4 => self.left = usize::from(u16::from_be_bytes([self.high, first])),
                _ => {}
            }
            self.header = (self.header + 1) % 5;
        }
        self
    }

    const fn is_between_records(self) -> bool {
        self.header == 0 && self.left == 0
    }
}

/// An error of [`TlsCipher::read_records`] in the handshake.
fn into_tls_error(error: io::Error) -> TlsError {
    match error.kind() {
        io::ErrorKind::InvalidData => {
            error.downcast().map_or(TlsError::Gone(io::ErrorKind::InvalidData), TlsError::Protocol)
        }
        kind => TlsError::Gone(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_position_does_not_depend_on_read_boundaries() {
        let records = [&[22, 3, 3, 1, 2][..], &[0; 258], &[20, 3, 3, 0, 0], &[23, 3, 3, 0, 1, 0]].concat();
        let ends: Vec<usize> = (0..=records.len())
            .filter(|length| RecordPosition::default().after(&records[..*length]).is_between_records())
            .collect();
        assert_eq!(ends, [0, 263, 268, 274]);
        for length in 0..=records.len() {
            let halves = RecordPosition::default().after(&records[..length]).after(&records[length..]);
            assert!(halves.is_between_records(), "{length}");
        }
    }
}
