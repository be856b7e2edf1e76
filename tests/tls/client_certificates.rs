//! Client certificates, alone and as an alternative to passwords.

use std::path::PathBuf;

use crate::certificate::Certificate;
use crate::curl::{Fetched, curl};
use crate::harness::{Folder, HTPASSWD, Relay};
use crate::origin;
use crate::programs::{is_any_missing, program, run_successfully};

/// A certificate authority for client certificates.
pub struct Authority(Folder);

impl Authority {
    pub fn new() -> Self {
        let authority = Self(Folder::new());
        authority.openssl("authority", &["-subj", "/CN=authority"]);
        authority
    }

    fn openssl(&self, name: &str, more: &[&str]) {
        let mut openssl = program("openssl", &self.0);
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
        openssl.arg("-keyout").arg(self.0.0.join(format!("{name}.key")));
        run_successfully(openssl.arg("-out").arg(self.file(name)).current_dir(&self.0.0).args(more));
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.0.join(format!("{name}.pem"))
    }

    /// Signs a certificate with these arguments for openssl, and returns the arguments of curl for the certificate.
    pub fn sign(&self, name: &str, more: &[&str]) -> [String; 4] {
        let signing = ["-CA", "authority.pem", "-CAkey", "authority.key"];
        let usage = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "extendedKeyUsage=clientAuth"];
        self.openssl(name, &[&signing[..], &usage, more].concat());
        let file = |end: &str| self.0.0.join(format!("{name}.{end}")).display().to_string();
        ["--proxy-cert".to_owned(), file("pem"), "--proxy-key".to_owned(), file("key")]
    }
}

/// Fetches from `origin` through the relay, with further arguments for curl.
fn fetch(certificate: &Certificate, relay: &Relay, origin: &str, more: &[String]) -> Fetched {
    let proxy = format!("-xhttps://{}", relay.address());
    let (authority, url) = (certificate.file().display().to_string(), format!("http://{origin}/"));
    let more = more.iter().map(String::as_str);
    curl(&[proxy.as_str(), "--proxy-cacert", &authority, &url].into_iter().chain(more).collect::<Vec<_>>())
}

#[test]
fn client_certificate_identifies_the_user() {
    let Some(certificate) = Certificate::new() else { return };
    if is_any_missing(&["curl"]) {
        return;
    }
    let (authority, stranger, origin) = (Authority::new(), Authority::new(), origin::start().to_string());
    let clients = authority.file("authority");
    let mut relay = Relay::listen(&[&format!("{}&tls_clients={}", certificate.listener("auto"), clients.display())]);
    let email = "subjectAltName=email:bob@example.com";
    for (user, arguments) in [
        ("alice", &["-subj", "/O=Example/CN=alice"][..]),
        ("bob@example.com", &["-subj", "/O=Example", "-addext", email]),
    ] {
        fetch(&certificate, &relay, &origin, &authority.sign("client", arguments)).assert_ended(0, 200);
        let closed = relay.closed();
        assert_eq!((&closed["end"], &closed["user"]), (&"finished".into(), &user.into()), "{closed}");
        let series = format!("ekiden_user_bytes_total{{user=\"{user}\",direction=\"down\"}}");
        assert_eq!(relay.metric(&series), closed["bytes_down"].as_u64(), "{series}");
    }

    for (arguments, end) in [
        (authority.sign("nameless", &["-subj", "/O=Example"]).to_vec(), "unauthenticated"),
        (stranger.sign("client", &["-subj", "/CN=alice"]).to_vec(), "bad_handshake"),
        (Vec::new(), "bad_handshake"),
    ] {
        assert_ne!(fetch(&certificate, &relay, &origin, &arguments).code, 0, "{arguments:?}");
        let closed = relay.closed();
        assert_eq!((&closed["end"], &closed["user"]), (&end.into(), &serde_json::Value::Null), "{closed}");
    }
}

#[test]
fn password_is_accepted_instead_of_a_client_certificate() {
    let Some(certificate) = Certificate::new() else { return };
    if is_any_missing(&["curl"]) {
        return;
    }
    let (authority, origin) = (Authority::new(), origin::start().to_string());
    let users = authority.0.write("users", HTPASSWD);
    let keys = format!("&tls_clients={}&users={}", authority.file("authority").display(), users.display());
    let mut relay = Relay::listen(&[&(certificate.listener("auto") + &keys)]);
    let by_password = ["-U", "ann:correct horse"].map(str::to_owned);
    for (arguments, status, user) in [
        (authority.sign("client", &["-subj", "/CN=alice"]).to_vec(), 200, Some("alice")),
        (by_password.to_vec(), 200, Some("ann")),
        (Vec::new(), 407, None),
    ] {
        fetch(&certificate, &relay, &origin, &arguments).assert_ended(0, status);
        assert_eq!(relay.closed()["user"].as_str(), user);
    }
}

/// With `tls_clients` a listener may bind to any address, which otherwise requires `users`.
#[test]
fn client_authorities_permit_a_public_bind_address() {
    let Some(certificate) = Certificate::new() else { return };
    let authority = Authority::new();
    let check = |bind: &str, keys: &str| {
        let text = format!("version = 1\n[[listener]]\nbind = \"{bind}\"\n{keys}\n");
        let file = certificate.folder.write("ekiden.toml", text);
        let output = crate::harness::ekiden().arg("check").arg(file).output().unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let clients = format!("tls_clients = \"{}\"\n", authority.file("authority").display());
    let (accepted, printed) = check("0.0.0.0:0", &(certificate.keys() + &clients));
    assert!(accepted, "{printed}");
    for (keys, expected) in [
        (certificate.keys(), "a loopback address"),
        (clients, "tls_certificate in the same listener"),
        (certificate.keys() + "tls_clients = \"/nowhere\"", "a readable file with certificates in PEM"),
    ] {
        let (accepted, printed) = check("0.0.0.0:0", &keys);
        assert!(!accepted && printed.contains(expected), "{printed}");
    }
}
