//! The last known state of the fleet in a file, for a relay that starts while etcd is unavailable.
//!
//! A new file is written completely and then renamed over the old one (rename(2)). Entries are kept with their
//! signatures, so that write access to the file does not suffice to add a member.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use ekiden_proto::fleet::{MemberList, VerifyKey};
use ekiden_proto::key::PublicKey;
use serde_json::{Value, json};

/// Returns the content of the file.
pub fn serialize(fleet: &VerifyKey, roster: &MemberList, now: Duration, unix: u64) -> String {
    let members = roster.members().map(
        |(key, member)| json!({ "key": key, "age": now.saturating_sub(member.received_at).as_secs(), "entry": member.signed_text }),
    );
    let numbers = roster.sequences().map(|(key, number, not_after)| json!([key, number, not_after]));
    let state = json!({
        "fleet": fleet,
        "saved": unix,
        "members": members.collect::<Vec<_>>(),
        "numbers": numbers.collect::<Vec<_>>(),
    });
    format!("{state:#}\n")
}

/// Replaces the file atomically: a crash leaves either the old or the new file.
///
/// # Errors
/// The directory is missing or the disk is full. The old file stays.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let written = write_synced(temporary.as_ref(), text).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // An incomplete file is useless and takes space on a full disk.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_synced(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Reads the file into an empty roster. A missing file is no error.
///
/// # Errors
/// The file, or a part of it, cannot be used; the text states the reason.
pub fn read(path: &Path, roster: &mut MemberList, now: Duration, unix: u64) -> Result<(), String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    let state: Value = serde_json::from_str(&text).map_err(|error| format!("malformed JSON: {error}"))?;
    let list = |name: &str| state[name].as_array().cloned().unwrap_or_default();
    let mut refused = None;
    for member in list("members") {
        if let Some((key, entry)) = parse_key(&member["key"]).zip(member["entry"].as_str())
            && let Err(error) = roster.apply_entry(&key, entry.as_bytes(), now, unix)
        {
            refused = Some(format!("the entry of {key} is rejected: {error}"));
        }
    }
    for number in list("numbers") {
        if let (Some(key), Some(number), Some(not_after)) =
            (parse_key(&number[0]), number[1].as_u64(), number[2].as_u64())
        {
            roster.record_sequence(key, number, not_after);
        }
    }
    refused.map_or(Ok(()), Err)
}

fn parse_key(text: &Value) -> Option<PublicKey> {
    text.as_str()?.parse().ok()
}
