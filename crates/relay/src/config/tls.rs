//! TLS of listeners: the certificate chain and the private key, which are read again when the files change.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ekiden_proto::wire::x509::not_after;
use time::OffsetDateTime;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

use super::error::Disclosure;
use super::file_stamp::FileStamp;
use super::reader::TableReader;
use super::shared::ReadContext;
use super::{Listener, ListenerKind, key};

/// Minimum interval between two checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time before the expiry of a certificate from which it should be renewed.
const RENEWAL_TIME: Duration = Duration::from_secs(14 * DAY);

const DAY: u64 = 24 * 60 * 60;

/// The option for the certificate chain.
const CERTIFICATE: &str = "tls_certificate";

/// The option for the private key.
const KEY: &str = "tls_key";

/// The option for the authorities that sign client certificates.
const CLIENTS: &str = "tls_clients";

/// The ALPN names of HTTP, in the order of preference (RFC 9113, 3.2; RFC 7301, 6).
const HTTP_PROTOCOLS: [&[u8]; 2] = [HTTP2, b"http/1.1"];

/// The ALPN name of HTTP/2 over TLS.
pub const HTTP2: &[u8] = b"h2";

/// The certificate of a listener, and the files that it is read from.
pub struct TlsListener {
    files: TlsFiles,
    current: Mutex<CurrentCertificate>,
}

/// The earliest expiry of the certificates in a chain.
#[derive(Debug)]
pub struct CertificateExpiry {
    file: PathBuf,
    /// The last second in which clients accept the certificate.
    pub end: SystemTime,
}

impl CertificateExpiry {
    /// Whether the certificate should be renewed: it expires within two weeks, or has expired.
    #[must_use]
    pub fn is_soon(&self, now: SystemTime) -> bool {
        self.end < now + RENEWAL_TIME
    }

    /// Whether the certificate has expired, so that clients refuse it.
    #[must_use]
    pub fn is_over(&self, now: SystemTime) -> bool {
        self.end < now
    }

    /// Formats the file and the date of expiry.
    #[must_use]
    pub fn describe(&self, now: SystemTime) -> String {
        let (file, date) = (self.file.display(), OffsetDateTime::from(self.end).date());
        match self.end.duration_since(now) {
            Ok(remaining) => {
                format!("the certificate in {file} expires on {date}, in {} days", remaining.as_secs() / DAY)
            }
            Err(_) => format!("the certificate in {file} expired on {date}"),
        }
    }
}

/// The configured files and options.
#[derive(Debug)]
struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    /// The certificates of the authorities that sign client certificates; `None` without client certificates.
    clients: Option<PathBuf>,
    /// Whether clients without a certificate may authenticate with a password.
    has_users: bool,
    /// The offered ALPN protocols (RFC 7301).
    alpn: Vec<Vec<u8>>,
}

/// The certificate in use.
struct CurrentCertificate {
    config: Arc<ServerConfig>,
    /// The earliest end of the certificates in the chain; `None` if none has a valid date.
    end: Option<SystemTime>,
    /// State of the files when they were last read, with or without mistakes.
    stamps: FileStamps,
    checked_at: Instant,
}

/// State of the files: if it differs, the content may differ.
type FileStamps = [Option<FileStamp>; 3];

impl Listener {
    /// Whether the listener offers HTTP/2 to clients.
    #[must_use]
    pub fn offers_http2(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.files.alpn.iter().any(|name| name == HTTP2))
    }
}

/// A mistake in the files: the option that names the file, and the expected content.
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
    /// Whether clients without a certificate are refused.
    pub fn needs_client_certificate(&self) -> bool {
        self.files.clients.is_some() && !self.files.has_users
    }

    /// Returns the expiry of the certificate in use; `None` if its chain has no valid date.
    pub fn expiry(&self) -> Option<CertificateExpiry> {
        let end = self.current().end?;
        Some(CertificateExpiry { file: self.files.certificate.clone(), end })
    }

    fn load(files: TlsFiles) -> Result<Self, TlsFileError> {
        let stamps = files.stamps();
        let (config, end) = files.load()?;
        let current = CurrentCertificate { config, end, stamps, checked_at: Instant::now() };
        Ok(Self { files, current: Mutex::new(current) })
    }

    fn current(&self) -> MutexGuard<'_, CurrentCertificate> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the configuration for the next handshake, and the result of reading if the files have changed. Files
    /// with mistakes leave the certificate unchanged.
    pub fn server_config(&self) -> (Arc<ServerConfig>, Option<Result<(), TlsFileError>>) {
        let mut current = self.current();
        if current.checked_at.elapsed() < CHECK_INTERVAL {
            return (Arc::clone(&current.config), None);
        }
        current.checked_at = Instant::now();
        // Before reading: a change in between is detected at the next check.
        let stamps = self.files.stamps();
        if stamps == current.stamps {
            return (Arc::clone(&current.config), None);
        }
        current.stamps = stamps;
        let read = self.files.load().map(|loaded| (current.config, current.end) = loaded);
        (Arc::clone(&current.config), Some(read))
    }
}

impl TlsFiles {
    fn stamps(&self) -> FileStamps {
        [Some(&self.certificate), Some(&self.key), self.clients.as_ref()]
            .map(|path| path.and_then(|path| FileStamp::of(path)))
    }

    /// Reads the files. Returns the TLS configuration, and the earliest end of the certificates in the chain.
    fn load(&self) -> Result<(Arc<ServerConfig>, Option<SystemTime>), TlsFileError> {
        let chain = read_chain(CERTIFICATE, &self.certificate)?;
        let end = chain.iter().filter_map(|certificate| not_after(certificate)).min();
        let end = end.and_then(|end| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(end)));
        let key = read_key(&self.key)?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("invariant: ring has TLS 1.2 and 1.3");
        let builder = match &self.clients {
            Some(clients) => builder.with_client_cert_verifier(self.read_clients(clients, provider)?),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|tls| match tls {
            rustls::Error::InconsistentKeys(_) => error(KEY, "the private key of the certificate"),
            other => error(KEY, format!("a key and a certificate that TLS can use ({other})")),
        })?;
        config.alpn_protocols.clone_from(&self.alpn);
        // Kernel TLS needs the secrets.
        config.enable_secret_extraction = true;
        if self.clients.is_some() {
            // A resumed session would skip the verification of the client certificate.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        } else if let Ok(ticketer) = ring::Ticketer::new() {
            config.ticketer = ticketer;
        }
        Ok((Arc::new(config), end))
    }

    fn read_clients(
        &self,
        path: &Path,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, TlsFileError> {
        let unusable = |reason: &dyn fmt::Display| {
            error(CLIENTS, format!("certificates of authorities that TLS can use ({reason})"))
        };
        let mut authorities = RootCertStore::empty();
        for certificate in read_chain(CLIENTS, path)? {
            authorities.add(certificate).map_err(|tls| unusable(&tls))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider);
        let verifier = if self.has_users { verifier.allow_unauthenticated() } else { verifier };
        verifier.build().map_err(|tls| unusable(&tls))
    }
}

fn error(option: &'static str, expected: impl Into<String>) -> TlsFileError {
    TlsFileError { option, expected: expected.into() }
}

fn read_chain(option: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let text =
        fs::read(path).map_err(|io| error(option, format!("a readable file with certificates in PEM ({io})")))?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|pem| error(option, format!("a file with certificates in PEM ({pem})")))?;
    if chain.is_empty() { Err(error(option, "a file with at least one PEM block CERTIFICATE")) } else { Ok(chain) }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    let read = key::read_limited(path);
    let (is_open_to_others, text) =
        read.map_err(|io| error(KEY, format!("a readable file with a private key in PEM ({io})")))?;
    if is_open_to_others {
        return Err(error(KEY, key::owner_only_hint("file", path)));
    }
    PrivateKeyDer::from_pem_slice(text.as_bytes())
        .map_err(|_| error(KEY, "a file with a private key in PEM, without a passphrase"))
}

/// Reads the TLS options; `None` without TLS, or after reporting a mistake.
pub(super) fn read(
    reader: &TableReader<'_>,
    kind: Option<ListenerKind>,
    shared: &ReadContext,
) -> Option<Arc<TlsListener>> {
    const OPTIONS: [&str; 3] = [CERTIFICATE, KEY, CLIENTS];
    reader.set_disclosure(KEY, Disclosure::Path);
    let paths: [Option<PathBuf>; 3] = OPTIONS.map(|option| reader.optional(option));
    let present: Vec<&'static str> = OPTIONS.into_iter().filter(|option| reader.has(option)).collect();
    let (kind, first) = (kind?, *present.first()?);
    if !matches!(kind, ListenerKind::Auto | ListenerKind::Socks | ListenerKind::Http) {
        let expected = r#"this key only with kind = "auto", "socks" or "http""#;
        present.iter().for_each(|option| reader.error(option, expected));
        return None;
    }
    if let Some(missing) = [CERTIFICATE, KEY].into_iter().find(|option| !reader.has(option)) {
        reader.error(first, format!("{missing} in the same listener: TLS needs a certificate and its private key"));
        return None;
    }
    if reader.has(CLIENTS) {
        shared.accept_any_user();
    }
    let [Some(certificate), Some(key), clients] = paths else { return None };
    // SOCKS has no registered ALPN name (RFC 7301).
    let alpn = if kind == ListenerKind::Socks { Vec::new() } else { HTTP_PROTOCOLS.map(<[u8]>::to_vec).to_vec() };
    let files = TlsFiles { certificate, key, clients, has_users: reader.has("users"), alpn };
    match TlsListener::load(files) {
        Ok(tls) => Some(Arc::new(tls)),
        Err(TlsFileError { option, expected }) => {
            reader.error(option, expected);
            None
        }
    }
}
