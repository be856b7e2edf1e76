//! Tokens of the admin listener: when a token is required, how it is sent, and messages about a missing or wrong token.

use std::process::Output;

use crate::fixture::{Fixture, TOKEN};
use crate::harness::{Folder, Relay, ekiden};

fn check(folder: &Folder, admin: &str) -> (Option<i32>, String) {
    let listener = "[[listener]]\nbind = \"127.0.0.1:0\"\n";
    let file = folder.write("check.toml", format!("version = 1\n{listener}[admin]\n{admin}\n"));
    output_of(&ekiden().arg("check").arg(&file).output().unwrap())
}

fn output_of(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout[..], &output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn non_loopback_bind_address_requires_a_token() {
    let folder = Folder::new();
    let file = folder.write_with_mode("token", TOKEN, 0o600);
    let with_token = format!("token_file = \"{}\"", file.display());
    for bind in ["0.0.0.0:9090", "[::]:9090", "192.0.2.1:9090"] {
        let (code, text) = check(&folder, &format!("bind = \"{bind}\""));
        assert_eq!(code, Some(2), "{bind}: {text}");
        assert!(text.contains("admin.bind") && text.contains("token_file"), "{text}");
        let (code, text) = check(&folder, &format!("bind = \"{bind}\"\n{with_token}"));
        assert_eq!(code, Some(0), "{bind}: {text}");
    }
    let run = ekiden().args(["run", "-L", "auto://127.0.0.1:0", "--admin", "0.0.0.0:0"]).output().unwrap();
    let (code, text) = output_of(&run);
    assert!(code != Some(0) && text.contains("--admin") && text.contains("token_file"), "{code:?} {text}");
}

#[test]
fn token_file_must_be_private_and_long_enough() {
    let folder = Folder::new();
    for (text, mode, expected) in [
        (TOKEN, 0o644, "only its owner can read: chmod 600"),
        (TOKEN, 0o640, "only its owner can read: chmod 600"),
        ("short", 0o600, "16 to 256"),
        ("two words that are long enough", 0o600, "16 to 256"),
        ("", 0o600, "16 to 256"),
    ] {
        let file = folder.write_with_mode("token", text, mode);
        let (code, message) = check(&folder, &format!("token_file = \"{}\"", file.display()));
        assert_eq!(code, Some(2), "{text}: {message}");
        assert!(message.contains("admin.token_file") && message.contains(expected), "{message}");
        assert!(text.is_empty() || !message.contains(text), "the token is shown: {message}");
    }
    // The token itself in place of its file must not appear in a message; a name in `hosts` must not have a port.
    let (_, message) = check(&folder, &format!("token_file = \"{TOKEN}\"\nhosts = [\"relay.example:9090\"]"));
    assert!(
        !message.contains(TOKEN) && message.contains("admin.hosts[1]") && message.contains("without a port"),
        "{message}"
    );
}

#[test]
fn requests_without_the_right_token_get_401() {
    let fixture = Fixture::with_token("");
    for path in ["/metrics", "/api/sessions", "/api/stream", "/nothing"] {
        let answer = fixture.get(path, &[]);
        assert_eq!(answer.status, 401, "{path}");
        assert!(answer.head.contains("www-authenticate: bearer"), "{}", answer.head);
        assert!(answer.body.contains("Authorization: Bearer"), "{}", answer.body);
    }
    let wrong = fixture.get("/api/sessions", &["Authorization: Bearer correct-horse-battery-stapl"]);
    assert_eq!(wrong.status, 401);
    assert!(wrong.body.contains("wrong token") && !wrong.body.contains(TOKEN), "{}", wrong.body);
    let right = fixture.get("/api/sessions", &[&format!("Authorization: Bearer {TOKEN}")]);
    assert_eq!(right.status, 200);
    assert!(right.body.contains("\"sessions\":[]"), "{}", right.body);
    // Without the token, the page and `/api/access` are available, and reveal only that a token is required.
    assert_eq!(fixture.get("/", &[]).status, 200);
    assert_eq!(fixture.get("/api/access", &[]).body.trim(), r#"{"token":true}"#);
    assert_eq!(Fixture::open().get("/api/access", &[]).body.trim(), r#"{"token":false}"#);
}

#[test]
fn status_sends_the_token_of_the_file() {
    let fixture = Fixture::with_token("");
    let admin = fixture.admin.to_string();
    let status = |more: &[&str]| output_of(&ekiden().args(["status", "--admin", &admin]).args(more).output().unwrap());
    let (code, text) = status(&[]);
    assert!(code == Some(1) && text.contains("401") && text.contains("token"), "{code:?} {text}");
    let file = fixture.folder.0.join("token");
    let (code, text) = status(&["--token-file", file.to_str().unwrap()]);
    assert!(code == Some(0) && text.contains("0 sessions"), "{code:?} {text}");
    let wrong = fixture.folder.write("wrong", "short");
    let (code, text) = status(&["--token-file", wrong.to_str().unwrap()]);
    assert!(code == Some(1) && text.contains("16 to 256"), "{code:?} {text}");
}

/// With port 0, the configuration does not contain the port of the admin listener. Regression: `ekiden status -c`
/// connected to port 0.
#[test]
fn status_of_a_configuration_with_port_0_asks_for_admin() {
    let fixture = Fixture::with_token("");
    assert_ne!(fixture.admin.port(), 0);
    let file = fixture.folder.0.join("ekiden.toml");
    let (code, text) = output_of(&ekiden().arg("status").arg("-c").arg(&file).output().unwrap());
    assert!(code == Some(1) && text.contains("port 0") && text.contains("--admin"), "{code:?} {text}");
}

/// The permissions of the socket file restrict access to its owner, so the token in the configuration is not required.
#[test]
fn a_unix_socket_needs_no_token() {
    let folder = Folder::new();
    let file = folder.write_with_mode("token", TOKEN, 0o600);
    let text = format!(
        "version = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\n[admin]\nbind = \"127.0.0.1:0\"\ntoken_file = \"{}\"\n",
        file.display()
    );
    let config = folder.write("ekiden.toml", text);
    // The harness passes `--admin` with a Unix socket.
    let relay = Relay::run(&["-c", config.to_str().unwrap()], 1);
    assert!(relay.sessions().is_empty());
}
