//! Key files: who this relay is; and other files with a secret in them.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use ekiden_proto::key::PrivateKey;

use super::reader::Reader;
use super::value::KeyFile;

/// Reads the key file that an option names; `None` when it is left out, or after noting what is wrong with it.
pub(super) fn read(reader: &Reader<'_>, option: &'static str) -> Option<Arc<PrivateKey>> {
    let KeyFile(path) = reader.optional(option)?;
    let text = secret(reader, option, &path, "a readable file with a private key, made by `ekiden keygen`")?;
    match PrivateKey::from_file(&text) {
        Ok(key) => Some(Arc::new(key)),
        Err(error) => {
            reader.mistake(option, format!("{error}, in {}", path.display()));
            None
        }
    }
}

/// What is in a file that nobody else may read; `None` after noting that it is not what is `expected`.
pub(super) fn secret(reader: &Reader<'_>, option: &'static str, path: &Path, expected: &str) -> Option<String> {
    let unreadable = |error| reader.mistake(option, format!("{expected} ({error})"));
    let (open_to_others, text) = content(path).map_err(unreadable).ok()?;
    if open_to_others {
        reader.mistake(option, closed("file", path));
    }
    Some(text)
}

/// Warns of a file that every user of this host can read. The file is less secret than a key, so its group, such as that of the
/// service, may read it.
pub(super) fn warn_of_open(reader: &Reader<'_>, option: &'static str, path: &Path) {
    if is_open(path) {
        reader.warn(option, closed("file", path));
    }
}

/// Whether every user of this host can read a file.
pub(super) fn is_open(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| may_read(&metadata, 0o007))
}

/// The expectation that a mistake states for a file that other users can read.
pub(super) fn closed(what: &str, path: &Path) -> String {
    format!("a {what} that only its owner can read: chmod 600 {}", path.display())
}

/// Whether the mode of a file has one of these permission bits (chmod(2)).
fn may_read(metadata: &Metadata, classes: u32) -> bool {
    metadata.permissions().mode() & classes != 0
}

/// Whether others may read it, and what is in it, as far as a key file goes.
fn content(path: &Path) -> io::Result<(bool, String)> {
    const LONGEST: u64 = 4 << 10;
    let file = File::open(path)?;
    let open_to_others = may_read(&file.metadata()?, 0o077);
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok((open_to_others, text))
}

/// The key of a relay that was given none. Only listeners that are open to every key know what to make of it. It stays
/// the same until the process ends, so that a reload keeps the connections that are ready.
pub(super) fn made_at_start() -> Arc<PrivateKey> {
    Arc::clone(MADE.get_or_init(|| Arc::new(PrivateKey::generate())))
}

/// Whether `key` is the key that [`made_at_start`] returns.
pub(super) fn is_made_at_start(key: &Arc<PrivateKey>) -> bool {
    MADE.get().is_some_and(|made| Arc::ptr_eq(made, key))
}

static MADE: OnceLock<Arc<PrivateKey>> = OnceLock::new();
