//! Hops: `section://HOST:PORT?key=PUBLIC[&encrypt=true]`, `socks5://[USER:PASS@]HOST:PORT`, and the same with `http`; each
//! with `?profile=NAME`.
//!
//! The password may stand in the URL (percent-encoded), in a file (`?password_file=PATH`) or in an environment variable
//! (`?password_env=NAME`). No mistake shows any of it, nor the URL it stands in.

use std::fs;
use std::path::{Path, PathBuf};

use ekiden_proto::addr::Target;

use super::mistake::Found;
use super::place::Place;
use super::profiles::tuned;
use super::reader::Reader;
use super::shared::Shared;
use super::url::{Url, table};
use super::{Credentials, Hop, HopKind, Peering};

/// What a mistake says is expected.
pub(super) const EXPECTED: &str = "a hop like section://HOST:PORT?key=PUBLIC, socks5://[USER:PASS@]HOST:PORT or \
    http://[USER:PASS@]HOST:PORT, with ?profile=NAME, and special characters in USER and PASS percent-encoded";

/// User name, and password where there is one.
type User = Option<(String, Option<String>)>;

/// Reads the hop that stands at `place`, or notes why not.
pub(super) fn read(place: &Place<'_>, text: &str, shared: &Shared) -> Option<Hop> {
    let wrong = || {
        place.note(Found::Hidden, EXPECTED);
        None
    };
    let Some(url) = Url::parse(text) else { return wrong() };
    let Ok(address) = Target::parse(url.address, None) else { return wrong() };
    if !url.path.is_empty() {
        return wrong();
    }
    let query = table(url.query);
    // The query is no file even where the URL stands in one: all its values are texts, on the line of the URL.
    let options = Reader::of_text(place.clone(), &query);
    let kind = match url.scheme {
        "section" => section(place, &options, &url.user, shared),
        // Names are always left to the hop, which is what the `h` asks for.
        "socks5" | "socks5h" => Some(HopKind::Socks5(credentials(place, &options, url.user, fits_socks5))),
        "http" => Some(HopKind::Http(credentials(place, &options, url.user, fits_http))),
        _ => return wrong(),
    };
    let profile = shared.profiles.choose(&options, "profile");
    options.finish();
    let kind = kind?;
    let profile = if matches!(kind, HopKind::Section(_)) { tuned(profile) } else { profile };
    let name = format!("{}://{address}", kind.word()).into();
    Some(Hop { name, kind, address, profile })
}

/// Reads what it takes to call another ekiden: the same keys in a URL and in `[[relay]]`.
pub(super) fn peering(options: &Reader<'_>, shared: &Shared) -> Option<Peering> {
    let encrypt = options.or("encrypt", false);
    Some(Peering { key: options.required("key")?, own: shared.calling_key(), encrypt })
}

fn section(place: &Place<'_>, options: &Reader<'_>, user: &User, shared: &Shared) -> Option<HopKind> {
    if user.is_some() {
        place.note(Found::Hidden, "no user and password here, but ?key=PUBLIC: section://HOST:PORT?key=PUBLIC");
    }
    peering(options, shared).map(HopKind::Section)
}

/// RFC 1929, 2: one byte each for the lengths, and neither is empty.
fn fits_socks5(user: &str, password: &str) -> bool {
    let fits = |text: &str| (1..=255).contains(&text.len());
    fits(user) && fits(password)
}

/// RFC 7617, 2: a colon ends the user name.
fn fits_http(user: &str, _password: &str) -> bool {
    !user.contains(':')
}

/// User and password; `None` when there are none, or a mistake about them.
fn credentials(
    place: &Place<'_>,
    options: &Reader<'_>,
    user: User,
    fits: fn(&str, &str) -> bool,
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
    if !fits(&user, &password) {
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
