//! `[fleet]`: where relays learn of each other, and whose signature makes them believe it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::addr::Target;
use ekiden_proto::fleet::{Issued, Request, VerifyKey};
use ekiden_proto::key::PrivateKey;
use ekiden_proto::profile::Profile;

use super::profiles::tuned;
use super::reader::Reader;
use super::shared::Shared;
use super::shows::Shows;
use super::value::{Deadline, Value};
use super::{Credentials, Hop, HopKind, key};

/// Longest text of a certificate, in bytes.
const LONGEST_CERTIFICATE: u64 = 4 << 10;

/// What it takes to be part of a fleet, or to know one.
#[derive(Debug)]
pub struct Fleet {
    /// The servers of one etcd, as `http://HOST:PORT`; one after the other is asked.
    pub etcd: Vec<String>,
    /// Who we are there.
    pub user: Option<Credentials>,
    /// Who is believed.
    pub key: VerifyKey,
    /// What the keys of all entries begin with.
    pub prefix: String,
    /// What makes the others believe us; without it we only read.
    pub certificate: Option<Issued>,
    /// Our own key.
    pub own: Arc<PrivateKey>,
    /// Where the last known state is kept.
    pub state: Option<PathBuf>,
    /// How long our entry stays when we do not answer.
    pub lease: Duration,
    /// How long at least between two entries that only tell what was measured.
    pub every: Duration,
    /// How long a relay stays known that is no longer listed.
    pub keep: Duration,
    /// Whether sessions to relays of the fleet are encrypted.
    pub encrypt: bool,
    /// TCP settings of the sections to them.
    pub profile: Arc<Profile>,
}

/// Reads `[fleet]`; none where the file has none.
pub(super) fn read(file: &Reader<'_>, shared: &Shared) -> Option<Arc<Fleet>> {
    let reader = file.table("fleet");
    if !file.has("fleet") {
        return None;
    }
    let etcd = reader.some("etcd").into_iter().map(|(_, Endpoint(url))| url).collect();
    let key: Option<VerifyKey> = reader.required("key");
    let prefix = reader.optional("prefix").map(|Prefix(prefix)| prefix);
    let certificate = certificate(&reader, key.as_ref(), shared.private_key.as_deref());
    let fleet = Fleet {
        etcd,
        user: user(&reader),
        prefix: prefix.or_else(|| key.as_ref().map(usual_prefix)).unwrap_or_default(),
        key: key.unwrap_or(VerifyKey([0; 32])),
        certificate,
        own: shared.calling_key(),
        state: reader.optional("state"),
        lease: reader.or("lease", Lease(Duration::from_secs(30))).0,
        every: reader.or("every", Deadline::seconds(10)).0,
        keep: reader.or("keep", Deadline::seconds(3600)).0,
        encrypt: reader.or("encrypt", false),
        profile: tuned(shared.profiles.choose(&reader, "profile")),
    };
    reader.finish();
    Some(Arc::new(fleet))
}

/// Two fleets on one etcd do not even see each other.
fn usual_prefix(key: &VerifyKey) -> String {
    let begin: String = key.0[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("/ekiden/{begin}/")
}

/// Reads the file that the holder of the fleet key has made for this relay.
fn certificate(reader: &Reader<'_>, fleet: Option<&VerifyKey>, own: Option<&PrivateKey>) -> Option<Issued> {
    let path: PathBuf = reader.optional("certificate")?;
    let issued = match text(&path).map(|text| Issued::parse(&text)) {
        Ok(Ok(issued)) => issued,
        Ok(Err(why)) => {
            reader.mistake("certificate", format!("a file that `ekiden fleet sign` has made: {why}"));
            return None;
        }
        Err(error) => {
            reader.mistake("certificate", format!("a readable file that `ekiden fleet sign` has made ({error})"));
            return None;
        }
    };
    if let Some(Err(why)) = fleet.map(|fleet| issued.verify(fleet)) {
        reader.mistake("certificate", format!("a certificate that this fleet's key has signed: {why}"));
    }
    let Some(own) = own else {
        reader.mistake("certificate", "private_key beside it, the key of the relay that it is for");
        return None;
    };
    let Request { key, signing } = Request::of(own);
    if (issued.certificate.key, issued.certificate.signing) != (key, signing) {
        reader.mistake("certificate", "that of this relay: sign what `ekiden fleet request` prints for private_key");
    }
    Some(issued)
}

fn text(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    fs::File::open(path)?.take(LONGEST_CERTIFICATE).read_to_string(&mut text)?;
    Ok(text)
}

fn user(reader: &Reader<'_>) -> Option<Credentials> {
    let user: Option<String> = reader.optional("user");
    let file: Option<PathBuf> = reader.optional("password_file");
    match (user, file) {
        (None, None) => None,
        (Some(user), Some(path)) => {
            let text = key::secret(reader, "password_file", &path, "a readable file with the password of user")?;
            Some(Credentials { user, password: text.trim_end_matches(['\r', '\n']).to_owned() })
        }
        (Some(_), None) => {
            reader.mistake("password_file", "the path of a file with the password, beside user");
            None
        }
        (None, Some(_)) => {
            reader.mistake("user", "the name that goes with password_file");
            None
        }
    }
}

impl Hop {
    /// Stands for a relay of the fleet that has not come yet.
    #[must_use]
    pub fn absent(name: &str) -> Arc<Self> {
        let address = Target::parse("absent.invalid:1", None).expect("invariant: it is an address");
        Arc::new(Self { name: name.into(), kind: HopKind::Absent, address, profile: Arc::default() })
    }
}

/// A server of etcd.
struct Endpoint(String);

impl Value for Endpoint {
    const EXPECTED: &'static str = r#"a server of etcd like "http://127.0.0.1:2379"; with a path to it that others can \
        read, a loopback address where a tunnel begins (entries are signed, passwords are not hidden)"#;
    fn read(text: &str) -> Result<Self, &'static str> {
        let address = text.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        let good = address.is_some_and(|address| Target::parse(address, None).is_ok());
        if good { Ok(Self(text.to_owned())) } else { Err(Self::EXPECTED) }
    }
}

/// What keys in etcd begin with.
struct Prefix(String);

impl Value for Prefix {
    const EXPECTED: &'static str = r#"what keys in etcd begin with, of 1 to 128 visible characters, like "/ekiden/""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        let good = (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        let slash = if text.ends_with('/') { "" } else { "/" };
        if good { Ok(Self(format!("{text}{slash}"))) } else { Err(Self::EXPECTED) }
    }
}

/// How long an entry stays.
struct Lease(Duration);

impl Value for Lease {
    const EXPECTED: &'static str = r#"a time from "5s" to "1h", like "30s""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        let Deadline(span) = Deadline::read(text).map_err(|_| Self::EXPECTED)?;
        if (5..=3600).contains(&span.as_secs()) { Ok(Self(span)) } else { Err(Self::EXPECTED) }
    }
    fn meant(text: &str) -> Option<String> {
        Deadline::meant(text)
    }
}

impl Value for VerifyKey {
    const EXPECTED: &'static str = "a fleet's public key of 44 characters, as `ekiden fleet keygen` prints it";
    const SHOWS: Shows = Shows::PublicKey;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().map_err(|_| Self::EXPECTED)
    }
}
