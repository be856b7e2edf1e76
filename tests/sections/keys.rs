//! Keys: created, stored, known, unknown, wrong, revoked; after a reload that requires encryption every request is
//! encrypted.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use super::between::*;
use super::harness::*;
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
fn keygen_prints_two_keys_and_never_the_same() {
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
fn a_key_file_may_hold_the_private_key_alone() {
    let (key, folder) = (Key::new(), Folder::new());
    let alone = folder.write_with_mode("alone", format!("{}\n", key.private), 0o600);
    assert_eq!(checked("127.0.0.1:1", alone.to_str().unwrap(), ""), (Some(0), String::new()));
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let (key, folder) = (Key::new(), Folder::new());
    for mode in [0o640, 0o604, 0o644, 0o660] {
        let open = folder.write_with_mode("open", format!("private-key: {}\n", key.private), mode);
        let (code, said) = checked("127.0.0.1:1", open.to_str().unwrap(), "");
        assert_eq!(code, Some(2), "mode {mode:o}: {said}");
        assert!(said.contains("listener[1].key") && said.contains("600"), "{said:?} does not help");
        assert!(!said.contains(&key.private), "the key itself was shown");
        let url = format!("section://127.0.0.1:0?key={}", open.display());
        let output = ekiden().args(["run", "--admin", "off", "-L", &url]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "it starts with mode {mode:o}");
    }
}

#[test]
fn what_is_no_key_is_refused_and_not_shown() {
    let folder = Folder::new();
    for text in ["", "bm90IGEga2V5\n", "private-key: correct-horse-battery-staple\n"] {
        let file = folder.write_with_mode("bad", text, 0o600);
        let (code, said) = checked("127.0.0.1:1", file.to_str().unwrap(), "");
        assert_eq!(code, Some(2), "{text:?}");
        assert!(said.contains("listener[1].key"), "{said}");
        assert!(!said.contains("correct-horse") && !said.contains("bm90"), "{said}");
    }
    assert_eq!(checked("127.0.0.1:1", "/nonexistent/key", "").0, Some(2));
}

#[test]
fn a_listener_that_is_open_to_others_wants_peers() {
    let key = Key::new();
    let file = key.file.to_str().unwrap();
    for bind in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
        let (code, said) = checked(bind, file, "");
        assert_eq!(code, Some(2), "{bind}");
        assert!(said.contains("peers") && said.contains("allow_open"), "{said:?} does not help");
    }
    let folder = Folder::new();
    let peers = folder.write("peers", format!("{} somebody\n", Key::new().public));
    assert_eq!(checked("0.0.0.0:1", file, &format!("peers = {peers:?}\n")), (Some(0), String::new()));
    assert_eq!(checked("0.0.0.0:1", file, "allow_open = true\n"), (Some(0), String::new()));
}

#[test]
fn mistakes_in_the_peers_file_are_shown_with_their_lines() {
    let (key, folder) = (Key::new(), Folder::new());
    let good = Key::new().public;
    let text =
        format!("# fine\n{good} somebody to=*.example.com\nnonsense name\n{good}\n{good} twice\n{good} x at=home\n");
    let peers = folder.write("peers", text);
    let (code, said) = checked("127.0.0.1:1", key.file.to_str().unwrap(), &format!("peers = {peers:?}\n"));
    assert_eq!(code, Some(2), "{said}");
    for line in [3, 4, 5, 6] {
        assert!(said.contains(&format!("peers:{line}")), "no word of line {line} in:\n{said}");
    }
    assert!(!said.contains("peers:1:") && !said.contains("peers:2:"), "{said}");
}

#[test]
fn without_a_list_a_loopback_listener_takes_every_key() {
    let (relay, stranger) = (Site::new(), Site::new());
    let _relay = relay.relay("", "");
    let home = stranger.home(&format!("forward = [\"{}\"]\n", relay.url()), AUTO);
    echoes(&mut socks5(home.address(), parrot()).unwrap());
    // Even the one that a relay without a key makes at its start.
    let nobody = Relay::run(&["-L", "auto://127.0.0.1:0", "-F", &relay.url()], 1);
    echoes(&mut socks5(nobody.address(), parrot()).unwrap());
}

/// Without `--key` the relay reports at start that its key is temporary, the key itself, and the remedy.
#[test]
fn a_temporary_key_is_told_with_what_to_write_at_the_other_end() {
    let (far, folder, door) = (Site::new(), Folder::new(), own_address());
    let peers = far.admit(&[(&Key::new().public, "somebody")]);
    let mut relay = far.relay("", &format!("peers = {peers:?}\n"));
    let said = folder.0.join("stderr");
    let mut command = ekiden();
    command.args(["run", "--admin", "off", "-L", &format!("auto://{door}"), "-F", &far.url()]);
    let _home = Running(
        command.stdout(std::process::Stdio::null()).stderr(std::fs::File::create(&said).unwrap()).spawn().unwrap(),
    );
    eventually("it to listen", || std::net::TcpStream::connect(door).ok());
    let said = std::fs::read_to_string(&said).unwrap();
    let (_, rest) = said.split_once("add this line to its `peers` file:\n  ").expect(&said);
    let line = rest.lines().next().unwrap();
    assert!(said.starts_with("ekiden: no --key, so this relay uses a temporary key"), "{said}");
    assert!(said.contains("ekiden keygen") && said.contains("--key FILE"), "{said}");
    assert!(socks5(door, parrot()).is_err(), "a stranger was let in");
    std::fs::write(&peers, format!("{line}\n")).unwrap();
    relay.signal("HUP");
    relay.next(|event| event["event"] == "reloaded");
    eventually("the door to open", || socks5(door, parrot()).ok());
}

/// A process that ends with the test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The SOCKS code and the home relay's event for a session that must be refused.
fn refused(home: &mut Relay, target: SocketAddr) -> (u8, String, String) {
    let code = socks5(home.address(), target).map(|_| ()).expect_err("a session");
    let closed = home.closed();
    (code, closed["end"].as_str().unwrap().to_owned(), closed["detail"].to_string())
}

#[test]
fn a_stranger_does_not_get_in() {
    let (relay, known, stranger) = (Site::new(), Key::new(), Site::new());
    let peers = relay.admit(&[(&known.public, "known")]);
    let mut far = relay.relay("", &format!("peers = {peers:?}\n"));
    let (listener, target) = server();
    let settings = relay.table("far", "") + &everything_by("way", &["far".to_owned()]);
    let mut home = stranger.home(&settings, AUTO);
    for _ in 0..3 {
        let (code, end, detail) = refused(&mut home, target);
        assert_eq!((code, end.as_str()), (2, "denied_by_hop"), "{detail}");
        assert!(detail.contains("far") && detail.contains("key"), "{detail} does not help");
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "the target was reached");
    assert_eq!(far.closed()["end"], "unauthenticated");
}

#[test]
fn a_relay_with_another_key_is_not_the_one_that_was_meant() {
    let (relay, home) = (Site::new(), Site::new());
    let peers = relay.admit(&[(&home.key.public, "home")]);
    let _far = relay.relay("", &format!("peers = {peers:?}\n"));
    let table = relay.table("far", "").replace(&relay.key.public, &Key::new().public);
    let mut home = home.home(&(table + &everything_by("way", &["far".to_owned()])), AUTO);
    let (listener, target) = server();
    let (code, end, detail) = refused(&mut home, target);
    assert_eq!((code, end.as_str()), (2, "denied_by_hop"), "{detail}");
    assert!(detail.contains("far") && detail.contains("key"), "{detail} does not help");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "the target was reached");
}

/// A key that is removed from the file opens no session, even over connections that were ready; running sessions
/// continue. Put back, it works again.
#[test]
fn a_revoked_key_opens_nothing_more() {
    for encrypt in [false, true] {
        let mut chain = Chain::of_kind(1, encrypt);
        let (mut client, mut server) = chain.pair();
        let target = parrot();
        for _ in 0..5 {
            echoes(&mut socks5(chain.home.address(), target).unwrap());
        }
        eventually("connections that stand ready", || (connections_to(chain.sites[1].address) > 1).then_some(()));
        let reload = |chain: &mut Chain, key: &str| {
            chain.sites[1].admit(&[(key, "caller")]);
            chain.relays[0].signal("HUP");
            chain.relays[0].next(|event| event["event"] == "reloaded");
            // The worker answers a later request with the new list in force.
            chain.relays[0].sessions();
        };

        reload(&mut chain, &Key::new().public);
        for _ in 0..20 {
            assert!(socks5(chain.home.address(), target).is_err(), "a ready connection was of use");
        }
        talk(&mut client, &mut server);

        let known = chain.sites[0].key.public.clone();
        reload(&mut chain, &known);
        eventually("the door to open", || socks5(chain.home.address(), target).ok());
        talk(&mut client, &mut server);
        exchange(client, server, 100_000, 100_000);
    }
}

/// A web server that answers every request, on connections that stay.
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

fn asks(client: &mut TcpStream, server: SocketAddr, secret: &str) {
    write!(client, "GET http://{server}/{secret} HTTP/1.1\r\nHost: {server}\r\n\r\n").unwrap();
    let head = read_head(client);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(read_exactly(client, 2), b"ok");
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// The test reads the bytes between two relays. A connection that was kept from before the reload carried requests in the
/// clear to new clients, and clients that stayed went by the old configuration.
#[test]
fn no_request_is_readable_after_a_reload_that_asks_for_encryption() {
    let (site, home) = (Site::new(), Site::new());
    let peers = site.admit(&[(&home.key.public, "home")]);
    let _far = site.relay("", &format!("peers = {peers:?}\n"));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let tap = Arc::clone(&heard);
    let middle = between(site.address, Framed::Plain, move |frame| {
        tap.lock().unwrap().extend_from_slice(&frame.bytes);
        untouched(frame)
    });
    let settings = |encrypt: bool| {
        let table = site.table_at(middle, "far", &format!("encrypt = {encrypt}\n"));
        table + &everything_by("way", &["far".to_owned()])
    };
    let mut relay = home.home(&settings(false), AUTO);
    let (server, mut stays) = (web(), relay.connect());
    asks(&mut stays, server, "in-the-clear");
    assert!(holds(&heard.lock().unwrap(), "in-the-clear"), "the wire is not listened to");

    home.write_home(&settings(true), AUTO);
    relay.signal("HUP");
    relay.next(|event| event["event"] == "reloaded");
    relay.sessions();
    asks(&mut relay.connect(), server, "secret-of-a-new-client");
    asks(&mut stays, server, "secret-of-a-client-that-stays");
    let heard = heard.lock().unwrap();
    for secret in ["secret-of-a-new-client", "secret-of-a-client-that-stays"] {
        assert!(!holds(&heard, secret), "{secret} was readable between the relays");
    }
}
