//! An `ftp://` URL (RFC 1738, 3.2): credentials, path, and transfer type.
//!
//! Paths, users and passwords are bytes in an unknown character set. They are kept as text with one character for each
//! byte (U+0000 to U+00FF), which [`Latin1`] converts back for the server, so that names pass unchanged.
//!
//! Text that becomes part of an FTP command must not end the command: a line break, in any encoding, would let a web
//! page send arbitrary commands to any server that the relay can reach.

use std::io;

use ekiden_proto::wire::http::{Headers, RequestTarget, auth};
use percent_encoding::percent_decode_str;
use suppaftp::Encoding;

/// The password of `anonymous`, by custom an e-mail address (RFC 1635).
const ANONYMOUS_PASSWORD: &str = "ekiden@";

/// The parts of a URL.
#[derive(Debug, PartialEq, Eq)]
pub struct FtpUrl {
    /// The login in the URL or in `Authorization`, or an anonymous login.
    pub login: Login,
    /// The path relative to the login directory, or from the root if it begins with `/`; empty for the login directory
    /// itself.
    pub path: String,
    /// The transfer type of the URL.
    pub form: TransferForm,
    /// The path as written by the client, without `;type=`.
    raw_path: String,
    /// Scheme, user, host and port as the client wrote them.
    origin: String,
    authority: String,
}

/// User name and password.
#[derive(PartialEq, Eq)]
pub struct Login {
    /// The argument of `USER`.
    pub user: String,
    /// The argument of `PASS`.
    pub password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// `;type=` (RFC 1738, 3.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferForm {
    /// `i`, or no type.
    Binary,
    /// `a`: line ends are converted in transit, so the length is not known in advance.
    Text,
    /// `d`: a list of names.
    Folder,
}

/// Text with one character for each byte, as in [`FtpUrl`].
#[derive(Debug)]
pub struct Latin1;

impl Encoding for Latin1 {
    fn decode(&self, bytes: &[u8]) -> String {
        bytes.iter().map(|byte| char::from(*byte)).collect()
    }

    fn encode(&self, text: &str) -> io::Result<Vec<u8>> {
        text.chars().map(|c| u8::try_from(c).map_err(|_| io::ErrorKind::InvalidInput.into())).collect()
    }
}

/// Returns the bytes of a text in the form of [`Latin1`].
pub fn bytes_of(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect()
}

impl FtpUrl {
    /// Parses a URL; `None` if a part of it must not be part of an FTP command.
    pub fn read(form: &RequestTarget, headers: &Headers) -> Option<Self> {
        let RequestTarget::Absolute { authority_text, userinfo, path_and_query, .. } = form else { return None };
        let login = Login::read(userinfo.as_deref(), headers)?;
        let user = userinfo.as_ref().map(|userinfo| format!("{userinfo}@")).unwrap_or_default();
        let (raw_path, form) = split_type(path_and_query);
        // One slash separates host and path. A second slash, or %2F, begins an absolute path.
        let path = decode(raw_path.strip_prefix('/').unwrap_or_default())?;
        Some(Self {
            login,
            path,
            form,
            raw_path: raw_path.to_owned(),
            origin: format!("ftp://{user}{authority_text}"),
            authority: authority_text.clone(),
        })
    }

    /// Whether the path can only be a directory.
    pub fn is_folder(&self) -> bool {
        self.form == TransferForm::Folder || self.has_slash()
    }

    /// Whether relative links lead into the directory.
    pub fn has_slash(&self) -> bool {
        self.path.is_empty() || self.path.ends_with('/')
    }

    /// Whether a URL can name the parent directory.
    pub fn has_parent(&self) -> bool {
        !self.path.trim_matches('/').is_empty()
    }

    /// Returns the URL with a trailing slash, without `;type=`.
    pub fn with_slash(&self) -> String {
        format!("{}{}/", self.origin, self.raw_path)
    }

    /// Returns `ftp://`, host and port, as the realm of a password.
    pub fn realm(&self) -> String {
        format!("ftp://{}", self.authority)
    }

    /// Returns the URL without user, password and query.
    pub fn redacted(&self) -> String {
        let path = self.raw_path.split('?').next().unwrap_or_default();
        format!("ftp://{}{path}", self.authority)
    }
}

impl Login {
    /// Reads the login from the URL, else from `Authorization`, else returns an anonymous login. If the URL has a user
    /// without a password, the browser has asked for the password, and both come from the field.
    fn read(userinfo: Option<&str>, headers: &Headers) -> Option<Self> {
        let in_url = userinfo.filter(|userinfo| !userinfo.is_empty());
        let in_field = headers.get("Authorization").and_then(auth::parse_basic);
        let (user, password) = match (in_url.map(|userinfo| userinfo.split_once(':').ok_or(userinfo)), in_field) {
            (Some(Ok((user, password))), _) => (decode(user)?, decode(password)?),
            (_, Some((user, password))) => (decode_checked(&user)?, decode_checked(&password)?),
            (Some(Err(user)), None) => (decode(user)?, String::new()),
            (None, None) => (String::new(), String::new()),
        };
        let user = if user.is_empty() { "anonymous".to_owned() } else { user };
        let is_anonymous = ["anonymous", "ftp"].iter().any(|known| user.eq_ignore_ascii_case(known));
        let password = if is_anonymous && password.is_empty() { ANONYMOUS_PASSWORD.to_owned() } else { password };
        Some(Self { user, password })
    }
}

/// Splits `;type=X` off the end of a path.
fn split_type(path: &str) -> (&str, TransferForm) {
    let Some((base, parameter)) = path.rsplit_once(';') else { return (path, TransferForm::Binary) };
    let form = match parameter.to_ascii_lowercase().as_str() {
        "type=a" => TransferForm::Text,
        "type=i" => TransferForm::Binary,
        "type=d" => TransferForm::Folder,
        _ => return (path, TransferForm::Binary),
    };
    (base, form)
}

fn decode(text: &str) -> Option<String> {
    decode_checked(&percent_decode_str(text).collect::<Vec<u8>>())
}

/// Decodes bytes; `None` if they contain a line break, which would end a command, or NUL, which would end a string in
/// the server.
fn decode_checked(bytes: &[u8]) -> Option<String> {
    let ends_a_command = bytes.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    (!ends_a_command).then(|| Latin1.decode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_proto::wire::http::RequestHead;

    fn read(url: &str, authorization: Option<&[u8]>) -> Option<FtpUrl> {
        let head = format!("GET {url} HTTP/1.1\r\n\r\n");
        let (mut head, _) = RequestHead::parse(head.as_bytes(), 4096).unwrap();
        if let Some(value) = authorization {
            head.headers.push("Authorization", value);
        }
        FtpUrl::read(&head.target, &head.headers)
    }

    #[test]
    fn ftp_url_paths_and_transfer_types_are_read() {
        for (url, path, form, is_folder) in [
            ("ftp://h", "", TransferForm::Binary, true),
            ("ftp://h/", "", TransferForm::Binary, true),
            ("ftp://h/a/b%20c", "a/b c", TransferForm::Binary, false),
            ("ftp://h/a/", "a/", TransferForm::Binary, true),
            ("ftp://h/%2Fetc/motd", "/etc/motd", TransferForm::Binary, false),
            ("ftp://h//etc/motd", "/etc/motd", TransferForm::Binary, false),
            ("ftp://h/%2F", "/", TransferForm::Binary, true),
            ("ftp://h/a;type=a", "a", TransferForm::Text, false),
            ("ftp://h/a;TYPE=I", "a", TransferForm::Binary, false),
            ("ftp://h/a;type=d", "a", TransferForm::Folder, true),
            ("ftp://h/a;type=x", "a;type=x", TransferForm::Binary, false),
            ("ftp://h/a%3Btype=a", "a;type=a", TransferForm::Binary, false),
            ("ftp://h/a?b", "a?b", TransferForm::Binary, false),
            ("ftp://h/%E9%FF", "\u{e9}\u{ff}", TransferForm::Binary, false),
        ] {
            let location = read(url, None).unwrap();
            let found = (location.path.as_str(), location.form, location.is_folder());
            assert_eq!(found, (path, form, is_folder), "{url}");
            assert_eq!(Latin1.encode(path).unwrap(), bytes_of(path));
        }
    }

    #[test]
    fn login_is_read_from_url_then_authorization_field() {
        let field = Some(auth::write_basic(b"field", b"f:w").into_bytes());
        for (url, authorization, user, password) in [
            ("ftp://h/", None, "anonymous", "ekiden@"),
            ("ftp://@h/", None, "anonymous", "ekiden@"),
            ("ftp://ftp@h/", None, "ftp", "ekiden@"),
            ("ftp://me@h/", None, "me", ""),
            ("ftp://me:a%40b%3A:c@h/", field.as_deref(), "me", "a@b::c"),
            ("ftp://me@h/", field.as_deref(), "field", "f:w"),
            ("ftp://h/", field.as_deref(), "field", "f:w"),
        ] {
            let login = read(url, authorization).unwrap().login;
            assert_eq!((login.user.as_str(), login.password.as_str()), (user, password), "{url}");
        }
    }

    #[test]
    fn ftp_command_injection_is_refused() {
        for url in [
            "ftp://h/a%0D%0ADELE%20b",
            "ftp://h/a%0adele",
            "ftp://h/a%0d",
            "ftp://h/a%00b",
            "ftp://u%0d%0aQUIT@h/",
            "ftp://u:p%0AQUIT@h/",
            "ftp://u:p%00@h/",
        ] {
            assert_eq!(read(url, None), None, "{url}");
        }
        for (user, password) in [("u\r\nQUIT", "p"), ("u", "p\nQUIT"), ("u\0", "p")] {
            let value = auth::write_basic(user.as_bytes(), password.as_bytes());
            assert_eq!(read("ftp://h/", Some(value.as_bytes())), None, "{user:?} {password:?}");
        }
    }

    #[test]
    fn redacted_url_realm_and_debug_output_hide_secrets() {
        let location = read("ftp://me:secret@h:2121/a/b?c;type=a", None).unwrap();
        assert_eq!(location.redacted(), "ftp://h:2121/a/b");
        assert_eq!(location.realm(), "ftp://h:2121");
        assert_eq!(location.with_slash(), "ftp://me:secret@h:2121/a/b?c/");
        assert!(!format!("{:?}", location.login).contains("secret"));
    }
}
