//! Key files with the private key of this relay, and other files with secrets.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use ekiden_proto::key::PrivateKey;

use super::reader::TableReader;
use super::value::KeyFile;

/// Reads the key file of an option; `None` if the option is absent, or after reporting a mistake.
pub(super) fn read(reader: &TableReader<'_>, option: &'static str) -> Option<Arc<PrivateKey>> {
    let KeyFile(path) = reader.optional(option)?;
    let text = read_secret(reader, option, &path, "a readable file with a private key, made by `ekiden keygen`")?;
    match PrivateKey::from_file(&text) {
        Ok(key) => Some(Arc::new(key)),
        Err(error) => {
            reader.error(option, format!("{error}, in {}", path.display()));
            None
        }
    }
}

/// Reads a file that only its owner can read; `None` after reporting that it is not the `expected` file.
pub(super) fn read_secret(
    reader: &TableReader<'_>,
    option: &'static str,
    path: &Path,
    expected: &str,
) -> Option<String> {
    let unreadable = |error| reader.error(option, format!("{expected} ({error})"));
    let (open_to_others, text) = read_limited(path).map_err(unreadable).ok()?;
    if open_to_others {
        reader.error(option, owner_only_hint("file", path));
    }
    Some(text)
}

/// Warns of a file that every user of this host can read. The file is less secret than a key: its group, such as that
/// of the service, may read it.
pub(super) fn warn_if_world_readable(reader: &TableReader<'_>, option: &'static str, path: &Path) {
    if is_world_readable(path) {
        reader.warn(option, owner_only_hint("file", path));
    }
}

/// Whether every user of this host can read a file.
pub(super) fn is_world_readable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| has_permission(&metadata, 0o007))
}

/// Returns the expected text for a file that other users can read.
pub(super) fn owner_only_hint(what: &str, path: &Path) -> String {
    format!("a {what} that only its owner can read: chmod 600 {}", path.display())
}

/// Whether the mode of a file has one of these permission bits (chmod(2)).
fn has_permission(metadata: &Metadata, classes: u32) -> bool {
    metadata.permissions().mode() & classes != 0
}

/// Returns whether other users can read the file, and its content up to the size of a key file.
pub(super) fn read_limited(path: &Path) -> io::Result<(bool, String)> {
    const MAX_LENGTH: u64 = 16 << 10;
    let file = File::open(path)?;
    let open_to_others = has_permission(&file.metadata()?, 0o077);
    let mut text = String::new();
    file.take(MAX_LENGTH).read_to_string(&mut text)?;
    Ok((open_to_others, text))
}

/// Returns the key of a relay without a configured key. Only listeners that accept every key accept it. The key is the
/// same until the process ends, so that ready connections survive a reload.
pub(super) fn temporary_key() -> Arc<PrivateKey> {
    Arc::clone(TEMPORARY_KEY.get_or_init(|| Arc::new(PrivateKey::generate())))
}

/// Whether `key` is the key that [`temporary_key`] returns.
pub(super) fn is_temporary_key(key: &Arc<PrivateKey>) -> bool {
    TEMPORARY_KEY.get().is_some_and(|made| Arc::ptr_eq(made, key))
}

static TEMPORARY_KEY: OnceLock<Arc<PrivateKey>> = OnceLock::new();
