//! TLS of listeners: the certificate chain and the private key, which are read again when their files change.

use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

use super::error::Disclosure;
use super::reader::TableReader;
use super::{ListenerKind, key};

/// How often the files are looked at, at most.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The key of the certificate chain in the configuration.
const CERTIFICATE: &str = "tls_certificate";

/// The key of the private key in the configuration.
const KEY: &str = "tls_key";

/// A certificate and its files.
pub struct TlsListener {
    files: TlsFiles,
    current: Mutex<CurrentCertificate>,
}

/// The files that the configuration names.
#[derive(Debug)]
struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    /// The protocols that clients may select (RFC 7301).
    alpn: Vec<Vec<u8>>,
}

/// The certificate in force.
struct CurrentCertificate {
    config: Arc<ServerConfig>,
    /// The files when they were read last, also if they had a mistake.
    stamps: FileStamps,
    checked_at: Instant,
}

/// The state of the files: another state means other content.
type FileStamps = [Option<FileStamp>; 2];

/// Device, inode, size and time of the last change.
type FileStamp = (u64, u64, u64, i64, i64);

/// A mistake in the files: the key of the configuration that names the file, and the expected content.
#[derive(Debug)]
pub struct TlsFileError {
    option: &'static str,
    expected: String,
}

impl fmt::Display for TlsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to be {}", self.option, self.expected)
    }
}

impl fmt::Debug for TlsListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

impl TlsListener {
    fn load(files: TlsFiles) -> Result<Self, TlsFileError> {
        let stamps = files.stamps();
        let config = files.load()?;
        Ok(Self { files, current: Mutex::new(CurrentCertificate { config, stamps, checked_at: Instant::now() }) })
    }

    /// The configuration for the next handshake, and the result if changed files were read. Files with mistakes leave the
    /// certificate as it is.
    pub fn server_config(&self) -> (Arc<ServerConfig>, Option<Result<(), TlsFileError>>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.checked_at.elapsed() < CHECK_INTERVAL {
            return (Arc::clone(&current.config), None);
        }
        current.checked_at = Instant::now();
        // Before the files: a change in between is seen the next time.
        let stamps = self.files.stamps();
        if stamps == current.stamps {
            return (Arc::clone(&current.config), None);
        }
        current.stamps = stamps;
        let read = self.files.load().map(|config| current.config = config);
        (Arc::clone(&current.config), Some(read))
    }
}

impl TlsFiles {
    fn stamps(&self) -> FileStamps {
        let stamp = |metadata: Metadata| {
            (metadata.dev(), metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec())
        };
        [&self.certificate, &self.key].map(|path| fs::metadata(path).ok().map(stamp))
    }

    fn load(&self) -> Result<Arc<ServerConfig>, TlsFileError> {
        let error = |option, expected| TlsFileError { option, expected };
        let unreadable =
            |option, what: &str, io: io::Error| error(option, format!("a readable file with {what} ({io})"));
        let chain =
            fs::read(&self.certificate).map_err(|io| unreadable(CERTIFICATE, "a certificate chain in PEM", io))?;
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&chain)
            .collect::<Result<_, _>>()
            .map_err(|pem| error(CERTIFICATE, format!("a file with a certificate chain in PEM ({pem})")))?;
        if chain.is_empty() {
            return Err(error(CERTIFICATE, "a file with at least one PEM block CERTIFICATE".to_owned()));
        }
        let (is_open_to_others, key) =
            key::read_limited(&self.key).map_err(|io| unreadable(KEY, "a private key in PEM", io))?;
        if is_open_to_others {
            return Err(error(KEY, key::owner_only_hint("file", &self.key)));
        }
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|_| error(KEY, "a file with a private key in PEM, without a passphrase".to_owned()))?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("invariant: ring has TLS 1.2 and 1.3");
        let mut config = builder.with_no_client_auth().with_single_cert(chain, key).map_err(|tls| match tls {
            rustls::Error::InconsistentKeys(_) => error(KEY, "the private key of the certificate".to_owned()),
            other => error(KEY, format!("a key and a certificate that TLS can use ({other})")),
        })?;
        config.alpn_protocols.clone_from(&self.alpn);
        if let Ok(ticketer) = ring::Ticketer::new() {
            config.ticketer = ticketer;
        }
        Ok(Arc::new(config))
    }
}

/// Reads the options of TLS; `None` without TLS, or after noting a mistake.
pub(super) fn read(reader: &TableReader<'_>, kind: Option<ListenerKind>) -> Option<Arc<TlsListener>> {
    reader.set_disclosure(KEY, Disclosure::Path);
    let named = [CERTIFICATE, KEY].map(|option| reader.has(option));
    let paths: [Option<PathBuf>; 2] = [CERTIFICATE, KEY].map(|option| reader.optional(option));
    let kind = kind.filter(|_| named != [false; 2])?;
    if !matches!(kind, ListenerKind::Auto | ListenerKind::Socks | ListenerKind::Http) {
        let present = [CERTIFICATE, KEY].into_iter().zip(named).filter(|(_, named)| *named);
        present
            .for_each(|(option, _)| reader.error(option, r#"nothing: only kind = "auto", "socks" and "http" have it"#));
        return None;
    }
    if named[0] != named[1] {
        let (given, missing) = if named[0] { (CERTIFICATE, KEY) } else { (KEY, CERTIFICATE) };
        reader.error(given, format!("{missing} beside it: TLS needs the certificate and its private key"));
        return None;
    }
    let [Some(certificate), Some(key)] = paths else { return None };
    // SOCKS has no registered name (RFC 7301).
    let alpn = if kind == ListenerKind::Socks { Vec::new() } else { vec![b"http/1.1".to_vec()] };
    match TlsListener::load(TlsFiles { certificate, key, alpn }) {
        Ok(tls) => Some(Arc::new(tls)),
        Err(TlsFileError { option, expected }) => {
            reader.error(option, expected);
            None
        }
    }
}
