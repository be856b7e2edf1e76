//! The files of a certificate: errors that `ekiden check` finds, and changes while the relay runs.

use std::os::unix::fs::PermissionsExt;
use std::process::Output;
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls::version::TLS13;

use crate::certificate::Certificate;
use crate::harness::{Folder, Relay, accept, connect, ekiden, eventually, eventually_within, read_exactly, server};

/// Runs `ekiden check` with a listener of these keys.
fn check(keys: &str) -> Output {
    let folder = Folder::new();
    let file = folder.write("ekiden.toml", format!("version = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\n{keys}\n"));
    ekiden().arg("check").arg(file).output().unwrap()
}

/// The message of `ekiden check` for these keys.
fn error_of(keys: &str) -> String {
    let output = check(keys);
    assert!(!output.status.success(), "{keys}");
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn certificate_file_errors_state_the_expected_value() {
    let (Some(certificate), Some(other)) = (Certificate::new(), Certificate::new()) else { return };
    let [file, key, other] =
        [certificate.file(), certificate.key(), other.key()].map(|path| path.display().to_string());
    let empty = certificate.folder.write_with_mode("empty", "", 0o600).display().to_string();
    let both = |file: &str, key: &str| format!("tls_certificate = \"{file}\"\ntls_key = \"{key}\"");
    for (keys, expected) in [
        (format!("tls_certificate = \"{file}\""), "tls_key in the same listener"),
        (format!("tls_key = \"{key}\""), "tls_certificate in the same listener"),
        (
            format!("kind = \"tcp\"\ntarget = \"127.0.0.1:9\"\n{}", both(&file, &key)),
            r#"this key only with kind = "auto", "socks" or "http""#,
        ),
        (both(&file, &other), "the private key of the certificate"),
        (both(&empty, &key), "at least one PEM block CERTIFICATE"),
        (both(&file, &empty), "a file with a private key in PEM"),
        (both("/nowhere", &key), "a readable file with certificates in PEM"),
    ] {
        let printed = error_of(&keys);
        assert!(printed.contains(expected), "{keys}: {printed}");
    }
}

#[test]
fn private_key_readable_by_the_group_is_rejected() {
    let Some(certificate) = Certificate::new() else { return };
    let set_mode = |mode| std::fs::set_permissions(certificate.key(), std::fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o640);
    let printed = error_of(&certificate.keys());
    assert!(printed.contains("a file that only its owner can read: chmod 600"), "{printed}");
    set_mode(0o600);
    assert!(check(&certificate.keys()).status.success());
}

/// The DER of the certificate that the relay presents.
fn presented_certificate(certificate: &Certificate, relay: &Relay) -> Option<Vec<u8>> {
    let client = certificate.try_client(connect(relay.address()), &[&TLS13], &[]).ok()?;
    Some(client.0.conn.peer_certificates()?.first()?.to_vec())
}

#[test]
fn a_new_certificate_is_used_without_a_signal() {
    let Some(certificate) = Certificate::new() else { return };
    let relay = Relay::listen(&[&certificate.listener("auto")]);
    let (listener, address) = server();
    let mut old = certificate.client(relay.address()).connect(address);
    let mut at_server = accept(&listener);
    certificate.renew("localhost");
    // The client trusts only the new certificate.
    eventually("a handshake with the new certificate", || presented_certificate(&certificate, &relay));
    old.send(b"still here");
    assert_eq!(read_exactly(&mut at_server, 10), b"still here");
    let series = "ekiden_tls_certificate_reloads_total{listener=\"auto-0\",result=\"accepted\"}";
    assert!(relay.metric(series).is_some());
}

/// Regression: a change of the mode alone was not noticed, so the remedy that the warning names had no effect.
#[test]
fn a_key_is_used_as_soon_as_only_its_owner_can_read_it() {
    let Some(certificate) = Certificate::new() else { return };
    let relay = Relay::listen(&[&certificate.listener("auto")]);
    let set_mode = |mode| std::fs::set_permissions(certificate.key(), std::fs::Permissions::from_mode(mode)).unwrap();
    certificate.renew("localhost");
    set_mode(0o640);
    let rejected = "ekiden_tls_certificate_reloads_total{listener=\"auto-0\",result=\"rejected\"}";
    // The relay looks at the files before a handshake. The client does not trust the old certificate.
    eventually("a rejected key", || {
        assert!(presented_certificate(&certificate, &relay).is_none());
        relay.metric(rejected)
    });
    set_mode(0o600);
    eventually("a handshake with the new certificate", || presented_certificate(&certificate, &relay));
}

/// The log and the metric follow the certificate in use, and `ekiden doctor` follows the certificate in the file.
#[test]
fn a_certificate_that_expires_soon_is_reported() {
    let Some(certificate) = Certificate::new() else { return };
    certificate.renew_for("localhost", "13");
    let text = format!("version = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\nname = \"door\"\n{}", certificate.keys());
    let file = certificate.folder.write("ekiden.toml", text);
    let file = file.to_str().unwrap();
    let mut relay = Relay::run(&["-c", file], 1);
    let warning = relay.next(|event| event["event"] == "warning")["message"].as_str().unwrap().to_owned();
    let prefix = format!("listener door: the certificate in {} expires on 20", certificate.file().display());
    assert!(warning.starts_with(&prefix) && warning.ends_with(", in 12 days: renew it"), "{warning}");
    let days = |relay: &Relay| {
        let metrics = relay.ask("/metrics");
        let line = "ekiden_tls_certificate_expiry_timestamp_seconds{listener=\"door\"} ";
        let end: f64 = metrics.lines().find_map(|shown| shown.strip_prefix(line)).unwrap().parse().unwrap();
        (end - SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64()) / f64::from(24 * 60 * 60)
    };
    assert!((12.0..13.0).contains(&days(&relay)), "{} days", days(&relay));
    let finding = || {
        let output = ekiden().args(["doctor", "--json", "-c", file]).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap().clone();
        findings.into_iter().find(|finding| finding["check"] == "certificate").unwrap()
    };
    let soon = finding();
    assert_eq!((&soon["verdict"], &soon["subject"]), (&"could".into(), &"certificate of door".into()), "{soon}");

    certificate.renew("localhost");
    eventually("a handshake with the new certificate", || presented_certificate(&certificate, &relay));
    assert!((29.0..30.0).contains(&days(&relay)), "{} days", days(&relay));
    assert_eq!(finding()["verdict"], "good");
    // A reload warns again only of a certificate that expires soon.
    relay.signal("HUP");
    relay.next(|event| event["event"] == "reloaded");
    relay.signal("TERM");
    assert!(relay.remaining_events().iter().all(|event| event["event"] != "warning"));
}

#[test]
fn invalid_files_keep_the_current_certificate() {
    let Some(certificate) = Certificate::new() else { return };
    let mut relay = Relay::listen(&[&certificate.listener("auto")]);
    let good = std::fs::read(certificate.file()).unwrap();
    let before = presented_certificate(&certificate, &relay).unwrap();
    std::fs::write(certificate.file(), "no certificate").unwrap();
    let assert_warned = |relay: &mut Relay, text: &str| {
        let warning = relay.next(|event| event["event"] == "warning");
        let message = warning["message"].as_str().unwrap().to_owned();
        assert!(message.contains(text) && message.contains("remains in use"), "{message}");
    };
    // Handshakes check the files for changes, at most once per second.
    let trusting = Certificate { folder: Folder::new() };
    std::fs::write(trusting.file(), &good).unwrap();
    let series = "ekiden_tls_certificate_reloads_total{listener=\"auto-0\",result=\"rejected\"}";
    eventually_within(Duration::from_secs(20), "the rejected certificate in the metrics", || {
        assert_eq!(presented_certificate(&trusting, &relay).unwrap(), before);
        (relay.metric(series) == Some(1)).then_some(())
    });
    assert_warned(&mut relay, "tls_certificate to be a file with at least one PEM block");

    // A reload rejects the file, too.
    relay.signal("HUP");
    relay.next(|event| event["event"] == "reload_rejected");
    assert_eq!(presented_certificate(&trusting, &relay).unwrap(), before);
}

#[test]
fn reload_switches_the_certificate_file() {
    let (Some(first), Some(second)) = (Certificate::new(), Certificate::new()) else { return };
    let text = |certificate: &Certificate| {
        format!("version = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\nname = \"door\"\n{}", certificate.keys())
    };
    let file = first.folder.write("ekiden.toml", text(&first));
    let mut relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    assert!(presented_certificate(&first, &relay).is_some());
    first.folder.write("ekiden.toml", text(&second));
    relay.signal("HUP");
    relay.next(|event| event["event"] == "reloaded");
    eventually("a handshake with the other certificate", || presented_certificate(&second, &relay));
    assert!(presented_certificate(&first, &relay).is_none(), "the first certificate is still in use");
}
