//! `[fleet]`: the etcd through which relays discover each other, and the key that verifies their certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::addr::Target;
use ekiden_proto::fleet::{CertificateRequest, SignedCertificate, VerifyKey};
use ekiden_proto::key::PrivateKey;
use ekiden_proto::profile::Profile;

use super::error::Disclosure;
use super::profiles::for_section;
use super::reader::TableReader;
use super::shared::ReadContext;
use super::value::{ConfigValue, PositiveDuration};
use super::{Credentials, Hop, HopKind, key};

/// Maximum size of a certificate file, in bytes.
const MAX_CERTIFICATE: u64 = 4 << 10;

/// `[fleet]`: the settings of a fleet member or reader.
#[derive(Debug)]
pub struct FleetConfig {
    /// The endpoints of one etcd cluster, as `http://HOST:PORT`, tried one after the other.
    pub etcd: Vec<String>,
    /// User and password for etcd.
    pub credentials: Option<Credentials>,
    /// The key that verifies certificates.
    pub key: VerifyKey,
    /// The prefix of the etcd keys of all entries.
    pub prefix: String,
    /// The certificate of this relay; `None` if the relay only reads the entries of others.
    pub certificate: Option<SignedCertificate>,
    /// The private key of this relay.
    pub own_key: Arc<PrivateKey>,
    /// File that stores the last known state.
    pub state_file: Option<PathBuf>,
    /// Time after which etcd deletes the entry of this relay if the relay does not renew it.
    pub lease: Duration,
    /// Minimum interval between two entries that differ only in measurements.
    pub publish_interval: Duration,
    /// Time for which a relay stays known after etcd no longer lists it.
    pub member_timeout: Duration,
    /// Whether sessions to relays of the fleet are encrypted.
    pub encrypt: bool,
    /// TCP settings of the sections to relays of the fleet.
    pub profile: Arc<Profile>,
}

impl FleetConfig {
    /// Returns whether a relay that changes to the settings `new` has its entry at the same place, for the same fleet.
    /// Two lists of etcd servers with a server in common belong to one etcd.
    #[must_use]
    pub fn has_same_entry(&self, new: &Self) -> bool {
        new.certificate.is_some()
            && (self.key, &self.prefix, self.own_key.public_key()) == (new.key, &new.prefix, new.own_key.public_key())
            && self.etcd.iter().any(|server| new.etcd.contains(server))
    }
}

/// Reads `[fleet]`; `None` without that table.
pub(super) fn read(file: &TableReader<'_>, shared: &ReadContext) -> Option<Arc<FleetConfig>> {
    let reader = file.table("fleet");
    if !file.has("fleet") {
        return None;
    }
    let etcd = reader.non_empty_list("etcd").into_iter().map(|(_, EtcdEndpoint(url))| url).collect();
    let key: Option<VerifyKey> = reader.required("key");
    let prefix = reader.optional("prefix").map(|EtcdPrefix(prefix)| prefix);
    let certificate = read_certificate(&reader, key.as_ref(), shared.private_key.as_deref());
    let fleet = FleetConfig {
        etcd,
        credentials: read_user(&reader),
        prefix: prefix.or_else(|| key.as_ref().map(default_prefix)).unwrap_or_default(),
        key: key.unwrap_or(VerifyKey([0; 32])),
        certificate,
        own_key: shared.dialling_key(),
        state_file: reader.optional("state"),
        lease: reader.optional_or("lease", LeaseDuration(Duration::from_secs(30))).0,
        publish_interval: reader.optional_or("every", PositiveDuration::seconds(10)).0,
        member_timeout: reader.optional_or("keep", PositiveDuration::seconds(3600)).0,
        encrypt: reader.optional_or("encrypt", false),
        profile: for_section(shared.profiles.read_profile(&reader, "profile")),
    };
    reader.finish();
    Some(Arc::new(fleet))
}

/// Returns the default prefix, which depends on the key: fleets that share an etcd are separate.
fn default_prefix(key: &VerifyKey) -> String {
    let begin: String = key.0[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("/ekiden/{begin}/")
}

/// Reads the certificate that the holder of the fleet key has issued for this relay, and verifies it.
fn read_certificate(
    reader: &TableReader<'_>,
    fleet: Option<&VerifyKey>,
    private_key: Option<&PrivateKey>,
) -> Option<SignedCertificate> {
    let path: PathBuf = reader.optional("certificate")?;
    let certificate = match read_limited(&path).map(|text| SignedCertificate::parse(&text)) {
        Ok(Ok(certificate)) => certificate,
        Ok(Err(error)) => {
            reader.error("certificate", format!("a file made by `ekiden fleet sign`: {error}"));
            return None;
        }
        Err(error) => {
            reader.error("certificate", format!("a readable file made by `ekiden fleet sign` ({error})"));
            return None;
        }
    };
    if let Some(Err(error)) = fleet.map(|fleet| certificate.verify(fleet)) {
        reader.error("certificate", format!("a certificate signed by this fleet's key: {error}"));
    }
    let Some(private_key) = private_key else {
        reader.error("certificate", "private_key to be set: the certificate belongs to the private key of the relay");
        return None;
    };
    let CertificateRequest { key, verify_key: signing } = CertificateRequest::for_relay(private_key);
    if (certificate.certificate.key, certificate.certificate.verify_key) != (key, signing) {
        reader.error(
            "certificate",
            "the certificate of this relay: sign the output of `ekiden fleet request` for private_key",
        );
    }
    Some(certificate)
}

fn read_limited(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    fs::File::open(path)?.take(MAX_CERTIFICATE).read_to_string(&mut text)?;
    Ok(text)
}

fn read_user(reader: &TableReader<'_>) -> Option<Credentials> {
    let user: Option<String> = reader.optional("user");
    let file: Option<PathBuf> = reader.optional("password_file");
    match (user, file) {
        (None, None) => None,
        (Some(user), Some(path)) => {
            let text = key::read_secret(reader, "password_file", &path, "a readable file with the password of user")?;
            Some(Credentials { user, password: text.trim_end_matches(['\r', '\n']).to_owned() })
        }
        (Some(_), None) => {
            reader.error("password_file", "the path of a file with the password of user");
            None
        }
        (None, Some(_)) => {
            reader.error("user", "the user name for the password in password_file");
            None
        }
    }
}

impl Hop {
    /// Creates a placeholder for a relay of the fleet that is not known yet.
    #[must_use]
    pub fn absent(name: &str) -> Arc<Self> {
        let address = Target::parse("absent.invalid:1", None).expect("invariant: the literal is an address");
        Arc::new(Self { name: name.into(), kind: HopKind::Absent, address, profile: Arc::default(), group: None })
    }
}

/// The URL of an etcd server.
struct EtcdEndpoint(String);

impl ConfigValue for EtcdEndpoint {
    const DISCLOSURE: Disclosure = Disclosure::Url;
    const EXPECTED: &'static str = "an etcd server like \"http://127.0.0.1:2379\"; if others can read the \
        traffic to etcd, the loopback address of an encrypted tunnel (entries are signed, but passwords are sent in plain \
        text)";
    fn read(text: &str) -> Result<Self, &'static str> {
        let address = text.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        let is_valid = address.is_some_and(|address| Target::parse(address, None).is_ok());
        if is_valid { Ok(Self(text.to_owned())) } else { Err(Self::EXPECTED) }
    }
}

/// The prefix of etcd keys.
struct EtcdPrefix(String);

impl ConfigValue for EtcdPrefix {
    const EXPECTED: &'static str = r#"a prefix of keys in etcd, of 1 to 128 visible characters, like "/ekiden/""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        let is_valid = (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        let slash = if text.ends_with('/') { "" } else { "/" };
        if is_valid { Ok(Self(format!("{text}{slash}"))) } else { Err(Self::EXPECTED) }
    }
}

/// The duration of the lease of an entry.
struct LeaseDuration(Duration);

impl ConfigValue for LeaseDuration {
    const EXPECTED: &'static str = r#"a time from "5s" to "1h", like "30s""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        let PositiveDuration(span) = PositiveDuration::read(text).map_err(|_| Self::EXPECTED)?;
        if (5..=3600).contains(&span.as_secs()) { Ok(Self(span)) } else { Err(Self::EXPECTED) }
    }
    fn suggestion(text: &str) -> Option<String> {
        PositiveDuration::suggestion(text)
    }
}

impl ConfigValue for VerifyKey {
    const EXPECTED: &'static str = "a fleet's public key of 44 characters, as `ekiden fleet keygen` prints it";
    const DISCLOSURE: Disclosure = Disclosure::PublicKey;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().map_err(|_| Self::EXPECTED)
    }
}
