//! A client that speaks TLS to a listener without TLS gets a TLS alert, and the log has the cause in plain words.

use std::process::Command;

use crate::harness::*;
use crate::talk::*;

/// A fatal alert, handshake_failure (RFC 8446, 6.2), in a record of TLS 1.0, which every version reads.
const ALERT: [u8; 7] = [0x15, 3, 1, 0, 2, 2, 40];

/// The beginning of a ClientHello (RFC 8446, 5.1): a handshake record, as all clients send it.
const CLIENT_HELLO: [u8; 11] = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];

const WHY: &str = "the client speaks TLS, and this listener does not: the proxy's URL has to begin with http:// or \
                   socks5://, not https://";

#[test]
fn a_client_hello_is_answered_by_an_alert_and_named_in_the_log() {
    for kind in ["auto", "http", "socks"] {
        let mut relay = Relay::listen(&[&format!("{kind}://127.0.0.1:0")]);
        let mut client = relay.connect();
        say(&mut client, CLIENT_HELLO);
        assert_eq!(read_all(&mut client), ALERT, "{kind}");
        drop(client);
        let closed = relay.closed();
        assert_eq!((&closed["end"], &closed["detail"]), (&"bad_handshake".into(), &WHY.into()), "{kind}");
        assert!(closed["seconds"].as_f64().unwrap() < 8.0, "the handshake deadline was waited for: {closed}");
    }
}

/// One byte is not enough to recognise TLS.
#[test]
fn a_client_hello_in_pieces_is_recognised_and_other_bytes_are_not() {
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let mut client = relay.connect();
    say(&mut client, &CLIENT_HELLO[..1]);
    say(&mut client, &CLIENT_HELLO[1..]);
    assert_eq!(read_all(&mut client), ALERT);
    assert_eq!(relay.closed()["detail"], WHY);
    let mut client = relay.connect();
    say(&mut client, b"\x16\x04rest\r\n\r\n");
    refused(&mut client, 400, "no TLS record");
    assert_eq!(relay.closed()["detail"], "control byte");
}

/// The URL of the proxy begins with https:// instead of http://, so curl speaks TLS to the proxy.
#[test]
fn curl_is_told_that_the_handshake_failed() {
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let proxy = format!("https://{}", relay.address());
    let output = Command::new("curl").args(["-q", "-sS", "-x", &proxy, "http://192.0.2.1/"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // curl(1): 35 is "SSL connect error. The SSL handshaking failed."
    assert_eq!(output.status.code(), Some(35), "{said}");
    assert!(said.contains("alert handshake failure"), "{said}");
    assert_eq!(relay.closed()["detail"], WHY);
}
