//! Hops: `section://HOST:PORT?key=PUBLIC[&encrypt=true]`, `socks5://[USER:PASS@]HOST:PORT`, and the same with `http`;
//! each with an optional `?profile=NAME`.
//!
//! The password can be given in the URL (percent-encoded), in a file (`?password_file=PATH`) or in an environment
//! variable (`?password_env=NAME`). No mistake shows the password, or a URL that contains it.

use std::path::{Path, PathBuf};

use ekiden_proto::addr::Target;

use super::error::Disclosure;
use super::error::closest;
use super::place::{KeyLocation, SourceText};
use super::profiles::for_section;
use super::reader::TableReader;
use super::shared::ReadContext;
use super::url::{OptionUrl, table_from_pairs};
use super::{Credentials, Hop, HopKind, Peering, key};

/// The expected format, for mistakes in a hop.
pub(super) const EXPECTED: &str = "a hop like section://HOST:PORT?key=PUBLIC, socks5://[USER:PASS@]HOST:PORT or \
    http://[USER:PASS@]HOST:PORT, with ?profile=NAME, and special characters in USER and PASS percent-encoded";

/// The user name, and the password if there is one.
type UrlUser = Option<(String, Option<String>)>;

/// The text of a URL, and its location in the configuration.
struct WrittenUrl<'w, 'a> {
    location: &'w KeyLocation<'a>,
    text: &'w str,
}

impl WrittenUrl<'_, '_> {
    /// Reports a mistake about the whole URL. Only the parts of the URL without secrets are shown.
    fn error(&self, expected: impl Into<String>) {
        self.location.error(Disclosure::Url.disclose_text(self.text), expected);
    }

    /// Returns the password as written in the URL. A value from the environment is not found in the text of a file.
    fn password(&self) -> Option<&str> {
        let (_, rest) = self.text.split_once("://")?;
        Some(rest.rsplit_once('@')?.0.split_once(':')?.1)
    }

    /// Warns of a password in the URL if other users can read the URL.
    fn warn_of_password(&self) {
        let SourceText { name, text, is_world_readable, .. } = self.location.source;
        let expected = match text {
            Some(text) if is_world_readable && self.password().is_some_and(|password| text.contains(password)) => {
                format!(
                    "a configuration file that only its owner can read, because it contains this password: \
                     chmod 600 {name}, or use {IN_FILE}"
                )
            }
            None if is_on_command_line(self.text) => {
                format!(
                    "no password on the command line, which `ps` shows to every user: \
                     use {IN_FILE} or ?password_env=NAME"
                )
            }
            _ => return,
        };
        self.location.warn(Disclosure::Url.disclose_text(self.text), expected);
    }
}

const IN_FILE: &str = "USER@HOST:PORT?password_file=FILE";

/// Whether `text` is part of an argument of this process. Otherwise it comes from the environment, which other users
/// cannot read.
fn is_on_command_line(text: &str) -> bool {
    std::env::args_os().any(|argument| argument.to_string_lossy().contains(text))
}

/// Reads the hop at `place`; reports a mistake and returns `None` if it is invalid.
pub(super) fn read(place: &KeyLocation<'_>, text: &str, shared: &ReadContext) -> Option<Hop> {
    let written = WrittenUrl { location: place, text };
    let report = |expected: String| {
        written.error(expected);
        None
    };
    let Some(url) = OptionUrl::parse(text) else {
        return report(scheme_hint(text).unwrap_or_else(|| EXPECTED.to_owned()));
    };
    let Ok(address) = address(&url) else { return report(expected_url(&url)) };
    let query = table_from_pairs(url.query);
    // The query is read like the command line even if the URL is in a file: all its values are strings, on the line of
    // the URL.
    let options = TableReader::of_text(place.clone(), &query);
    let kind = match url.scheme {
        "section" => read_section(&written, &options, &url.user, shared),
        // Names are always resolved by the proxy, as `socks5h` requests.
        "socks5" | "socks5h" | "socks" => {
            Some(HopKind::Socks5(read_credentials(&written, &options, url.user, fits_socks5)))
        }
        "http" => Some(HopKind::Http(read_credentials(&written, &options, url.user, fits_http))),
        other => return report(expected_scheme(other)),
    };
    let profile = shared.profiles.read_profile(&options, "profile");
    options.finish();
    let kind = kind?;
    let profile = if matches!(kind, HopKind::Section(_)) { for_section(profile) } else { profile };
    let name = format!("{}://{address}", kind.as_str()).into();
    Some(Hop { name, kind, address, profile, group: None })
}

/// Returns the address of a hop; an error if it is invalid or followed by a path.
fn address(url: &OptionUrl<'_>) -> Result<Target, ()> {
    if url.path.is_empty() { Target::parse(url.address, None).map_err(drop) } else { Err(()) }
}

/// Returns the expected text for a URL that is not a hop.
fn expected_url(url: &OptionUrl<'_>) -> String {
    let (scheme, address) = (url.scheme, url.address);
    let port = match scheme {
        "section" => "7000",
        "socks5" | "socks5h" | "socks" => "1080",
        "http" => "PORT",
        _ => return expected_scheme(scheme),
    };
    if address.starts_with(':') {
        return "a host before the port".to_owned();
    }
    if Target::parse(address, None).is_ok() {
        return "only ?key=value after the port".to_owned();
    }
    if Target::parse(address, Some(1)).is_ok() {
        return format!("a port after the host: {scheme}://{address}:{port}");
    }
    EXPECTED.to_owned()
}

fn expected_scheme(scheme: &str) -> String {
    match scheme {
        "https" => "http:// instead of https://: ekiden connects to hops without TLS".to_owned(),
        "socks4" | "socks4a" => format!("socks5:// instead of {scheme}://"),
        _ => match closest(scheme, ["section", "socks5", "http"]) {
            Some(suggestion) => format!("{suggestion}:// instead of {scheme}://"),
            None => format!("section://, socks5:// or http:// instead of {scheme}://"),
        },
    }
}

/// Returns the expected text for an address without a scheme; `None` if `text` is not an address.
pub(super) fn scheme_hint(text: &str) -> Option<String> {
    Target::parse(text, None).ok().map(|address| format!("a scheme before the address, like socks5://{address}"))
}

/// Reads the options of a connection to another ekiden, which URLs and `[[relay]]` have in common.
pub(super) fn read_peering(options: &TableReader<'_>, shared: &ReadContext) -> Option<Peering> {
    let encrypt = options.optional_or("encrypt", false);
    Some(Peering { key: options.required("key")?, own_key: shared.dialling_key(), encrypt })
}

fn read_section(
    written: &WrittenUrl<'_, '_>,
    options: &TableReader<'_>,
    user: &UrlUser,
    shared: &ReadContext,
) -> Option<HopKind> {
    if user.is_some() {
        written.error("?key=PUBLIC instead of a user and password: section://HOST:PORT?key=PUBLIC");
    }
    read_peering(options, shared).map(HopKind::Section)
}

/// Whether SOCKS5 can carry the credentials: 1 to 255 bytes each (RFC 1929, 2).
fn fits_socks5(user: &str, password: &str) -> bool {
    let fits = |text: &str| (1..=255).contains(&text.len());
    fits(user) && fits(password)
}

/// Whether Basic authentication can carry the credentials: a colon ends the user name (RFC 7617, 2).
fn fits_http(user: &str, _password: &str) -> bool {
    !user.contains(':')
}

/// Reads user and password; `None` if there are none, or after a mistake about them.
fn read_credentials(
    written: &WrittenUrl<'_, '_>,
    options: &TableReader<'_>,
    user: UrlUser,
    fits: fn(&str, &str) -> bool,
) -> Option<Credentials> {
    let file = options.optional::<PathBuf>("password_file");
    let variable = options.optional::<String>("password_env");
    let Some((user, inline)) = user else {
        if options.has("password_file") || options.has("password_env") {
            written.error("a user name before the host, USER@HOST:PORT, for the password");
        }
        return None;
    };
    let password = match (inline, file, variable) {
        (Some(password), None, None) => {
            written.warn_of_password();
            password
        }
        (None, Some(path), None) => password_from_file(options, &path)?,
        (None, None, Some(name)) => password_from_environment(options, &name)?,
        _ => {
            written.error("one password: USER:PASS@, or ?password_file=PATH, or ?password_env=NAME");
            return None;
        }
    };
    if !fits(&user, &password) {
        written.error("a user name and a password of 1 to 255 bytes, for http a user name without a colon");
        return None;
    }
    Some(Credentials { user, password })
}

fn password_from_file(options: &TableReader<'_>, path: &Path) -> Option<String> {
    let text = key::read_secret(options, "password_file", path, "a readable file with the password")?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    Some(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

fn password_from_environment(options: &TableReader<'_>, name: &str) -> Option<String> {
    let password = std::env::var(name).ok();
    if password.is_none() {
        options.error("password_env", "the name of an environment variable that contains the password");
    }
    password
}
