//! Keys of relays: creation, storage, sessions with an unknown, wrong or revoked key, and encryption of every request
//! after a reload that requires it.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use super::harness::*;
use super::interceptor::*;
use super::relays::*;
use super::streams::*;

/// The exit code and standard error of `ekiden check` for a relay with a section listener at `bind`.
fn checked(bind: &str, key: &str, more: &str) -> (Option<i32>, String) {
    let folder = Folder::new();
    let listener = format!("[[listener]]\nbind = \"{bind}\"\nkind = \"section\"\nkey = \"{key}\"\n{more}");
    let file = folder.write("ekiden.toml", format!("version = 1\n{listener}"));
    let output = ekiden().arg("check").arg(&file).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn keygen_prints_a_new_key_pair_each_time() {
    let (first, second) = (Key::new(), Key::new());
    for key in [&first, &second] {
        assert_eq!((key.private.len(), key.public.len()), (44, 44), "32 bytes in base64");
        assert_ne!(key.private, key.public);
        assert_eq!(checked("127.0.0.1:1", key.file.to_str().unwrap(), "").0, Some(0));
    }
    assert_ne!(first.private, second.private);
    assert_ne!(first.public, second.public);
}

#[test]
fn key_file_with_only_the_private_key_is_accepted() {
    let (key, folder) = (Key::new(), Folder::new());
    let alone = folder.write_with_mode("alone", format!("{}\n", key.private), 0o600);
    assert_eq!(checked("127.0.0.1:1", alone.to_str().unwrap(), ""), (Some(0), String::new()));
}

#[test]
fn key_file_readable_by_others_is_rejected() {
    let (key, folder) = (Key::new(), Folder::new());
    for mode in [0o640, 0o604, 0o644, 0o660] {
        let open = folder.write_with_mode("open", format!("private-key: {}\n", key.private), mode);
        let (code, message) = checked("127.0.0.1:1", open.to_str().unwrap(), "");
        assert_eq!(code, Some(2), "mode {mode:o}: {message}");
        assert!(message.contains("listener[1].key") && message.contains("600"), "no remedy in {message:?}");
        assert!(!message.contains(&key.private), "the private key was printed");
        let url = format!("section://127.0.0.1:0?key={}", open.display());
        let output = ekiden().args(["run", "--admin", "off", "-L", &url]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "the relay starts with mode {mode:o}");
    }
}

#[test]
fn invalid_key_file_is_rejected_and_not_printed() {
    let folder = Folder::new();
    for text in ["", "bm90IGEga2V5\n", "private-key: correct-horse-battery-staple\n"] {
        let file = folder.write_with_mode("bad", text, 0o600);
        let (code, message) = checked("127.0.0.1:1", file.to_str().unwrap(), "");
        assert_eq!(code, Some(2), "{text:?}");
        assert!(message.contains("listener[1].key"), "{message}");
        assert!(!message.contains("correct-horse") && !message.contains("bm90"), "{message}");
    }
    assert_eq!(checked("127.0.0.1:1", "/nonexistent/key", "").0, Some(2));
}

#[test]
fn non_loopback_section_listener_requires_peers() {
    let key = Key::new();
    let file = key.file.to_str().unwrap();
    for bind in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
        let (code, message) = checked(bind, file, "");
        assert_eq!(code, Some(2), "{bind}");
        assert!(message.contains("peers") && message.contains("allow_open"), "no remedy in {message:?}");
    }
    let folder = Folder::new();
    let peers = folder.write("peers", format!("{} somebody\n", Key::new().public));
    assert_eq!(checked("0.0.0.0:1", file, &format!("peers = {peers:?}\n")), (Some(0), String::new()));
    assert_eq!(checked("0.0.0.0:1", file, "allow_open = true\n"), (Some(0), String::new()));
}

#[test]
fn peers_file_errors_name_their_lines() {
    let (key, folder) = (Key::new(), Folder::new());
    let good = Key::new().public;
    let text =
        format!("# fine\n{good} somebody to=*.example.com\nnonsense name\n{good}\n{good} twice\n{good} x at=home\n");
    let peers = folder.write("peers", text);
    let (code, message) = checked("127.0.0.1:1", key.file.to_str().unwrap(), &format!("peers = {peers:?}\n"));
    assert_eq!(code, Some(2), "{message}");
    for line in [3, 4, 5, 6] {
        assert!(message.contains(&format!("peers:{line}")), "line {line} is not named in:\n{message}");
    }
    assert!(!message.contains("peers:1:") && !message.contains("peers:2:"), "{message}");
}

#[test]
fn loopback_listener_without_peers_accepts_every_key() {
    let (relay, stranger) = (Site::new(), Site::new());
    let _relay = relay.relay("", "");
    let home = stranger.home(&format!("forward = [\"{}\"]\n", relay.url()), AUTO);
    assert_echo(&mut socks5(home.address(), echo_server()).unwrap());
    // This includes the temporary key of a relay without a configured key.
    let without_key = Relay::run(&["-L", "auto://127.0.0.1:0", "-F", &relay.url()], 1);
    assert_echo(&mut socks5(without_key.address(), echo_server()).unwrap());
}

/// Without `--key` the relay reports at start that its key is temporary, the line for the `peers` file of the other
/// relay, and the remedy.
#[test]
fn temporary_key_is_reported_with_its_peers_line() {
    let (far, folder, door) = (Site::new(), Folder::new(), own_address());
    let peers = far.admit(&[(&Key::new().public, "somebody")]);
    let mut relay = far.relay("", &format!("peers = {peers:?}\n"));
    let log = folder.0.join("stderr");
    let mut command = ekiden();
    command.args(["run", "--admin", "off", "-L", &format!("auto://{door}"), "-F", &far.url()]);
    let _home = KillOnDrop(
        command.stdout(std::process::Stdio::null()).stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap(),
    );
    eventually("the listener of the home relay", || std::net::TcpStream::connect(door).ok());
    let message = std::fs::read_to_string(&log).unwrap();
    let (_, rest) = message.split_once("add this line to its `peers` file:\n  ").expect(&message);
    let line = rest.lines().next().unwrap();
    assert!(message.starts_with("ekiden: no --key, so this relay uses a temporary key"), "{message}");
    assert!(message.contains("ekiden keygen") && message.contains("--key FILE"), "{message}");
    assert!(socks5(door, echo_server()).is_err(), "an unknown key was admitted");
    std::fs::write(&peers, format!("{line}\n")).unwrap();
    relay.signal("HUP");
    relay.next(|event| event["event"] == "reloaded");
    eventually("a session with the admitted key", || socks5(door, echo_server()).ok());
}

/// The SOCKS reply code, and `end` and `detail` of the home relay's closing event, for a session that must be refused.
fn refused(home: &mut Relay, target: SocketAddr) -> (u8, String, String) {
    let code = socks5(home.address(), target).map(|_| ()).expect_err("a session");
    let closed = home.closed();
    (code, closed["end"].as_str().unwrap().to_owned(), closed["detail"].to_string())
}

#[test]
fn unknown_key_is_denied() {
    let (relay, known, stranger) = (Site::new(), Key::new(), Site::new());
    let peers = relay.admit(&[(&known.public, "known")]);
    let mut far = relay.relay("", &format!("peers = {peers:?}\n"));
    let (listener, target) = server();
    let settings = relay.table("far", "") + &route_all_through("way", &["far".to_owned()]);
    let mut home = stranger.home(&settings, AUTO);
    for _ in 0..3 {
        let (code, end, detail) = refused(&mut home, target);
        assert_eq!((code, end.as_str()), (2, "denied_by_hop"), "{detail}");
        assert!(detail.contains("far") && detail.contains("key"), "no cause in {detail}");
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "the target was reached");
    assert_eq!(far.closed()["end"], "unauthenticated");
}

#[test]
fn relay_with_an_unexpected_key_is_rejected() {
    let (relay, home) = (Site::new(), Site::new());
    let peers = relay.admit(&[(&home.key.public, "home")]);
    let _far = relay.relay("", &format!("peers = {peers:?}\n"));
    let table = relay.table("far", "").replace(&relay.key.public, &Key::new().public);
    let mut home = home.home(&(table + &route_all_through("way", &["far".to_owned()])), AUTO);
    let (listener, target) = server();
    let (code, end, detail) = refused(&mut home, target);
    assert_eq!((code, end.as_str()), (2, "denied_by_hop"), "{detail}");
    assert!(detail.contains("far") && detail.contains("key"), "no cause in {detail}");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "the target was reached");
}

/// A key that is removed from the peers file opens no session, even over connections that were ready; running sessions
/// continue.
#[test]
fn revoked_key_opens_no_session_until_restored() {
    for encrypt in [false, true] {
        let mut chain = Chain::start_with(1, encrypt);
        let (mut client, mut server) = chain.pair();
        let target = echo_server();
        for _ in 0..5 {
            assert_echo(&mut socks5(chain.home.address(), target).unwrap());
        }
        eventually("ready connections", || (connections_to(chain.sites[1].address) > 1).then_some(()));
        let reload = |chain: &mut Chain, key: &str| {
            chain.sites[1].admit(&[(key, "caller")]);
            chain.relays[0].signal("HUP");
            chain.relays[0].next(|event| event["event"] == "reloaded");
            // The worker answers this request after it has switched to the new list.
            chain.relays[0].sessions();
        };

        reload(&mut chain, &Key::new().public);
        for _ in 0..20 {
            assert!(socks5(chain.home.address(), target).is_err(), "a revoked key has opened a session");
        }
        exchange_messages(&mut client, &mut server);

        let known = chain.sites[0].key.public.clone();
        reload(&mut chain, &known);
        eventually("a session with the admitted key", || socks5(chain.home.address(), target).ok());
        exchange_messages(&mut client, &mut server);
        transfer_both_ways(client, server, 100_000, 100_000);
    }
}

/// A web server that answers every request, on persistent connections.
fn web() -> SocketAddr {
    serve(|mut stream| {
        let mut byte = [0];
        while let Ok(1) = stream.peek(&mut byte) {
            read_head(&mut stream);
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    })
}

fn request(client: &mut TcpStream, server: SocketAddr, secret: &str) {
    write!(client, "GET http://{server}/{secret} HTTP/1.1\r\nHost: {server}\r\n\r\n").unwrap();
    let head = read_head(client);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(read_exactly(client, 2), b"ok");
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// The test reads the bytes between two relays. Regression: a kept connection from before the reload carried requests
/// of new clients in plaintext, and clients that stayed connected used the old configuration.
#[test]
fn all_requests_are_encrypted_after_a_reload_with_encrypt() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let tap = Arc::clone(&received);
    let record = move |frame: Frame| {
        tap.lock().unwrap().extend_from_slice(&frame.bytes);
        forward_unchanged(frame)
    };
    let mut chain = Layout::default().start_through(|address| start_interceptor(address, Framed::Plain, record));
    let relay = &mut chain.home;
    let (server, mut persistent) = (web(), relay.connect());
    request(&mut persistent, server, "in-the-clear");
    assert!(contains(&received.lock().unwrap(), "in-the-clear"), "the tap reads no bytes");

    let file = chain.sites[0].folder.0.join("ekiden.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("encrypt = false", "encrypt = true")).unwrap();
    relay.signal("HUP");
    relay.next(|event| event["event"] == "reloaded");
    relay.sessions();
    request(&mut relay.connect(), server, "secret-of-a-new-client");
    request(&mut persistent, server, "secret-of-a-client-that-stays");
    let received = received.lock().unwrap();
    for secret in ["secret-of-a-new-client", "secret-of-a-client-that-stays"] {
        assert!(!contains(&received, secret), "{secret} was readable between the relays");
    }
}
