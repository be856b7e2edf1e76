//! Hops: `socks5://[USER:PASS@]HOST:PORT[?profile=NAME]`, and the same with `http`.
//!
//! The password may stand in the URL (percent-encoded), in a file (`?password_file=PATH`) or in an environment variable
//! (`?password_env=NAME`). No mistake shows any of it, nor the URL it stands in.

use std::fs;
use std::path::{Path, PathBuf};

use ekiden_proto::addr::Target;

use super::mistake::Found;
use super::place::Place;
use super::profiles::Profiles;
use super::reader::Reader;
use super::url::{Url, table};
use super::{Credentials, Hop, HopKind};

/// What a mistake says is expected.
pub(super) const EXPECTED: &str = "a hop like socks5://[USER:PASS@]HOST:PORT or http://[USER:PASS@]HOST:PORT, \
    with ?profile=NAME, and special characters in USER and PASS percent-encoded";

/// Reads the hop that stands at `place`, or notes why not.
pub(super) fn read(place: &Place<'_>, text: &str, profiles: &Profiles) -> Option<Hop> {
    let wrong = |expected: &str| {
        place.note(Found::Hidden, expected);
        None
    };
    let Some(url) = Url::parse(text) else { return wrong(EXPECTED) };
    let kind = match url.scheme {
        // Names are always left to the hop, which is what the `h` asks for.
        "socks5" | "socks5h" => HopKind::Socks5(None),
        "http" => HopKind::Http(None),
        "section" => return wrong("socks5:// or http://; section:// is not in this version yet"),
        _ => return wrong(EXPECTED),
    };
    let Ok(address) = Target::parse(url.address, None) else { return wrong(EXPECTED) };
    if !url.path.is_empty() {
        return wrong(EXPECTED);
    }
    let query = table(url.query);
    // The query is no file even where the URL stands in one: all its values are texts, on the line of the URL.
    let options = Reader::of_text(place.clone(), &query);
    let profile = profiles.choose(&options, "profile");
    let credentials = credentials(place, &options, &kind, url.user);
    options.finish();
    let kind = match kind {
        HopKind::Socks5(_) => HopKind::Socks5(credentials),
        HopKind::Http(_) => HopKind::Http(credentials),
        HopKind::Section(_) => return None,
    };
    let name = format!("{}://{address}", kind.word()).into();
    Some(Hop { name, kind, address, profile })
}

/// User and password; `None` when there are none, or a mistake about them.
fn credentials(
    place: &Place<'_>,
    options: &Reader<'_>,
    kind: &HopKind,
    user: Option<(String, Option<String>)>,
) -> Option<Credentials> {
    let file = options.optional::<PathBuf>("password_file");
    let variable = options.optional::<String>("password_env");
    let Some((user, inline)) = user else {
        if options.has("password_file") || options.has("password_env") {
            place.note(Found::Hidden, "a user name before the host, USER@HOST:PORT, to go with the password");
        }
        return None;
    };
    let password = match (inline, file, variable) {
        (Some(password), None, None) => password,
        (None, Some(path), None) => from_file(options, &path)?,
        (None, None, Some(name)) => from_environment(options, &name)?,
        _ => {
            place.note(Found::Hidden, "one password: USER:PASS@, or ?password_file=PATH, or ?password_env=NAME");
            return None;
        }
    };
    // RFC 1929, 2: one byte each for the lengths, and neither is empty. RFC 7617, 2: a colon ends the user name.
    let fits = |text: &str| (1..=255).contains(&text.len());
    let good = match kind {
        HopKind::Socks5(_) => fits(&user) && fits(&password),
        HopKind::Http(_) => !user.contains(':'),
        HopKind::Section(_) => false,
    };
    if !good {
        place.note(Found::Hidden, "a user name and a password of 1 to 255 bytes, for http a user name without a colon");
        return None;
    }
    Some(Credentials { user, password })
}

fn from_file(options: &Reader<'_>, path: &Path) -> Option<String> {
    match fs::read_to_string(path) {
        Ok(text) => {
            let line = text.strip_suffix('\n').unwrap_or(&text);
            Some(line.strip_suffix('\r').unwrap_or(line).to_owned())
        }
        Err(error) => {
            options.mistake("password_file", format!("a file with the password in it ({error})"));
            None
        }
    }
}

fn from_environment(options: &Reader<'_>, name: &str) -> Option<String> {
    let password = std::env::var(name).ok();
    if password.is_none() {
        options.mistake("password_env", "the name of an environment variable with the password in it");
    }
    password
}
