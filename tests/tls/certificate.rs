//! Self-signed certificates made by openssl, and a TLS client that reports how a stream ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    self, ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedCipherSuite, SupportedProtocolVersion,
};

use ekiden_sys::ktls::{self, Cipher, Version};

use crate::harness::{Ending, Folder, Relay, connect, is_virtual};
use crate::programs::{is_any_missing, program, run_successfully};

/// Whether the kernel makes the TLS records of tunnels.
pub fn has_kernel_tls() -> bool {
    let available = ktls::check_available(Version::Tls13, Cipher::Aes128Gcm);
    assert!(available.is_ok() || !is_virtual(), "the virtual kernel has kernel TLS: {available:?}");
    available.is_ok()
}

/// A self-signed certificate for `localhost` and 127.0.0.1, and its key.
pub struct Certificate {
    pub folder: Folder,
}

impl Certificate {
    /// Creates a certificate. Returns `None`, with a message, if openssl is missing.
    pub fn new() -> Option<Self> {
        if is_any_missing(&["openssl"]) {
            return None;
        }
        let certificate = Self { folder: Folder::new() };
        certificate.renew("localhost");
        Some(certificate)
    }

    /// Replaces both files, the key last.
    pub fn renew(&self, common_name: &str) {
        self.renew_for(common_name, "30");
    }

    /// Like `renew`, with a certificate that is valid for `days` days.
    pub fn renew_for(&self, common_name: &str, days: &str) {
        let [certificate, key] = ["new.pem", "new.key"].map(|name| self.folder.0.join(name));
        let mut openssl = program("openssl", &self.folder);
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", days]);
        openssl.args(["-subj", &format!("/CN={common_name}"), "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
        openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        run_successfully(openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate));
        std::fs::rename(certificate, self.file()).unwrap();
        std::fs::rename(key, self.key()).unwrap();
    }

    pub fn file(&self) -> PathBuf {
        self.folder.0.join("certificate.pem")
    }

    pub fn key(&self) -> PathBuf {
        self.folder.0.join("key.pem")
    }

    /// The URL of a listener of `kind` with this certificate.
    pub fn listener(&self, kind: &str) -> String {
        let (file, key) = (self.file(), self.key());
        format!("{kind}://127.0.0.1:0?tls_certificate={}&tls_key={}", file.display(), key.display())
    }

    /// The keys of a `[[listener]]` with this certificate.
    pub fn keys(&self) -> String {
        format!("tls_certificate = \"{}\"\ntls_key = \"{}\"\n", self.file().display(), self.key().display())
    }

    /// Writes the configuration of a relay with one listener with this certificate, named `door`. `before` are lines
    /// before the listener, and `keys` are further keys of the listener.
    pub fn configuration(&self, before: &str, keys: &str) -> PathBuf {
        let listener = format!("[[listener]]\nname = \"door\"\nbind = \"127.0.0.1:0\"\n{}{keys}\n", self.keys());
        self.folder.write("ekiden.toml", format!("version = 1\n{before}\n{listener}"))
    }

    /// Starts a relay with this [`configuration`](Self::configuration).
    pub fn relay(&self, before: &str, keys: &str) -> Relay {
        Relay::run(&["-c", self.configuration(before, keys).to_str().unwrap()], 1)
    }

    /// A connection to `relay` after the handshake.
    pub fn client(&self, relay: SocketAddr) -> Client {
        self.try_client(connect(relay), &[&TLS13], &[]).unwrap()
    }

    /// Like `client`, with TLS 1.2.
    pub fn client_of_tls12(&self, relay: SocketAddr) -> Client {
        self.try_client(connect(relay), &[&TLS12], &[]).unwrap()
    }

    /// Like `client`, with this cipher suite.
    pub fn client_of_suite(&self, relay: SocketAddr, suite: SupportedCipherSuite) -> Client {
        self.try_client_of_suites(connect(relay), vec![suite], &[suite.version()], &[]).unwrap()
    }

    /// A connection on `stream` after the handshake, or the error of the handshake.
    pub fn try_client(
        &self,
        stream: TcpStream,
        versions: &[&'static SupportedProtocolVersion],
        alpn: &[&str],
    ) -> std::io::Result<Client> {
        self.try_client_of_suites(stream, ring::default_provider().cipher_suites, versions, alpn)
    }

    fn try_client_of_suites(
        &self,
        stream: TcpStream,
        cipher_suites: Vec<SupportedCipherSuite>,
        versions: &[&'static SupportedProtocolVersion],
        alpn: &[&str],
    ) -> std::io::Result<Client> {
        let mut roots = RootCertStore::empty();
        roots.add(rustls::pki_types::CertificateDer::from_pem_file(self.file()).unwrap()).unwrap();
        let provider = CryptoProvider { cipher_suites, ..ring::default_provider() };
        let builder = ClientConfig::builder_with_provider(Arc::new(provider));
        let builder = builder.with_protocol_versions(versions).unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream);
        while client.conn.is_handshaking() {
            client.conn.complete_io(&mut client.sock)?;
        }
        Ok(Client(client))
    }
}

/// A TLS connection to a relay.
pub struct Client(pub StreamOwned<ClientConnection, TcpStream>);

impl Client {
    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
        self.0.flush().unwrap();
    }

    pub fn read_exactly(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Ends the direction to the relay with `close_notify` and FIN.
    pub fn end(&mut self) {
        self.0.conn.send_close_notify();
        while self.0.conn.wants_write() {
            self.0.conn.write_tls(&mut self.0.sock).unwrap();
        }
        self.0.sock.shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// Reads all remaining bytes, and returns them with the end of the stream, which is `None` if `close_notify` is
    /// missing.
    pub fn read_remaining(&mut self) -> (Vec<u8>, Option<Ending>) {
        let mut received = Vec::new();
        let ending = match self.0.read_to_end(&mut received) {
            Ok(_) => Some(Ending::Clean),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Some(Ending::Reset),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => None,
            Err(error) => panic!("{error} after {} bytes", received.len()),
        };
        (received, ending)
    }

    /// Opens a SOCKS5 tunnel.
    pub fn socks5(mut self, target: SocketAddr) -> Self {
        let SocketAddr::V4(target) = target else { panic!("IPv4 only") };
        self.send(&[5, 1, 0]);
        assert_eq!(self.read_exactly(2), [5, 0]);
        self.send(&[&[5, 1, 0, 1][..], &target.ip().octets(), &target.port().to_be_bytes()].concat());
        assert_eq!(self.read_exactly(10)[..2], [5, 0]);
        self
    }

    /// Opens a tunnel by CONNECT.
    pub fn connect(mut self, target: SocketAddr) -> Self {
        const ANSWER: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
        self.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes());
        assert_eq!(self.read_exactly(ANSWER.len()), ANSWER);
        self
    }
}
