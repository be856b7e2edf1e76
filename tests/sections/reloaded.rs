//! Encryption that a reload asks for holds for every request from then on, whatever connections there were before.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use crate::between::*;
use crate::harness::*;
use crate::relays::*;

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
