//! TLS connections (RFC 8446, RFC 5246) on which this relay is the server.
//!
//! The peer ends its direction with a `close_notify` alert. FIN without that alert counts as a reset, because every
//! host on the network path can forge FIN.

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

/// The cipher of one connection, and the bytes that have been read from its socket and not yet been forwarded.
pub struct TlsCipher {
    /// `None` after the keys have been passed to the kernel.
    connection: RefCell<Option<ServerConnection>>,
    /// The cipher suite; `None` before the end of the handshake.
    suite: Cell<Option<SupportedCipherSuite>>,
    /// Kernel TLS; empty until the keys are passed to the kernel.
    kernel: OnceCell<KernelTls>,
    /// The position in the stream of records after all bytes that were read from the socket.
    position: Cell<RecordPosition>,
    /// Bytes from the socket that rustls has not processed yet. rustls takes 4 KiB at once, which is too small for an
    /// efficient read(2).
    undecrypted: RefCell<Cursor<Vec<u8>>>,
    /// Number of decrypted bytes that have not been read.
    buffered: Cell<usize>,
    /// Whether the peer has sent `close_notify`.
    peer_closed: Cell<bool>,
    /// Whether the peer has sent FIN without `close_notify`.
    truncated: Cell<bool>,
}

/// The cause of a failed handshake.
#[derive(Debug)]
pub enum TlsError {
    /// The stream ended (`UnexpectedEof`) or failed.
    Gone(io::ErrorKind),
    /// The peer sent a message that is not valid TLS, or that this relay does not accept.
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

    /// Passes the keys to the kernel, if the kernel supports the connection and both directions are between two
    /// records. All encrypted records must have been sent.
    ///
    /// # Errors
    /// The keys could not be passed to the kernel, and the connection cannot be used any more.
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

    /// Returns whether all bytes from the socket have been read, the last byte ended a record, and no output is
    /// pending.
    fn is_between_records(&self) -> bool {
        let connection = &mut *self.connection();
        // rustls queues its response to a key update of the peer until the next write.
        let is_flushed = matches!(connection.writer().write(&[]), Ok(0)) && !connection.wants_write();
        is_flushed && !self.has_data() && self.position.get().is_between_records()
    }

    /// Returns whether the kernel encrypts and decrypts the records.
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

    /// Returns whether the next read uses bytes that have already been read from the socket.
    pub fn has_data(&self) -> bool {
        self.is_decided() || !self.undecrypted.borrow().get_ref().is_empty()
    }

    /// Returns whether the next read returns data or the end of the peer's direction without further records.
    pub fn is_decided(&self) -> bool {
        self.buffered.get() > 0 || self.peer_closed.get()
    }

    /// Returns whether the peer has ended its direction and all data before the end has been read.
    pub fn is_at_end(&self) -> bool {
        self.peer_closed.get() && self.buffered.get() == 0
    }

    /// The cause of an end of the stream that TCP does not report.
    pub fn fault(&self) -> Option<&'static str> {
        self.kernel.get().map_or_else(|| self.truncated.get().then_some(TRUNCATED), KernelTls::fault)
    }

    /// Reads decrypted data; 0 is the end of the peer's direction.
    ///
    /// # Errors
    /// As read(2), also `WouldBlock`; `ConnectionReset` for a truncated stream; `InvalidData` for an altered stream.
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

    /// Decrypts records. Reads from the socket first if no undecrypted bytes are left. The caller must have read all
    /// decrypted data.
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
    /// The keys have reached their limit, and TLS 1.2 has no key update.
    pub fn seal(&self, plaintext: &[u8]) -> io::Result<Vec<u8>> {
        self.connection().writer().write_all(plaintext)?;
        let sealed = self.take_output();
        // rustls drops data for which it has no keys, and sends `close_notify`. That would look like an orderly end.
        if sealed.len() < plaintext.len() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(sealed) }
    }

    /// Returns the encrypted alert that ends this direction.
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

    /// Returns whether the handshake has selected this application protocol (ALPN, RFC 7301).
    pub fn has_selected(&self, protocol: &[u8]) -> bool {
        self.connection().alpn_protocol() == Some(protocol)
    }

    /// The TLS version of the connection, as text.
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

    /// Returns the TLS parameters that a PROXY header reports to targets.
    pub fn client_tls(&self) -> ClientTls {
        let certificate = self.client_certificate();
        ClientTls {
            version: if self.version() == "1.2" { "TLSv1.2" } else { "TLSv1.3" },
            cipher: self.openssl_cipher_suite(),
            has_certificate: certificate.is_some(),
            common_name: certificate.as_deref().and_then(common_name).map(Box::from),
        }
    }

    /// The OpenSSL name of the cipher suite (openssl-ciphers(1)), which the PROXY protocol uses.
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
            // ring supports no other suite.
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
    /// Number of bytes of an incomplete record header (RFC 8446, 5.1) that have arrived; 0 if no header is incomplete.
    header: usize,
    /// The high byte of the length in the incomplete header.
    high: u8,
    /// Number of bytes after the record header that have not arrived.
    left: usize,
}

impl RecordPosition {
    /// Returns the position after the further bytes `bytes`.
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

/// Converts an error of [`TlsCipher::read_records`] during the handshake.
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
