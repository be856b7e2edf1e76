//! Kernel TLS: cipher suites, key updates, altered records, and installed clients. The virtual kernel has kernel TLS;
//! on a kernel without TLS, these tests are skipped.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "tls/certificate.rs"]
mod certificate;
#[path = "clients/curl.rs"]
mod curl;
mod harness;
#[path = "clients/origin.rs"]
#[allow(dead_code, reason = "these tests use their own parts of it")]
mod origin;
#[path = "clients/programs.rs"]
mod programs;
#[path = "tls/streams.rs"]
mod streams;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use ekiden_sys::ktls::{self, Cipher, Version};
use serde_json::Value;
use tokio_rustls::rustls::crypto::ring::cipher_suite;

use certificate::{Certificate, Client, has_kernel_tls};
use curl::curl;
use harness::{
    Ending, Relay, accept, connect, ekiden, eventually, join, pattern, read_all, read_exactly, read_remaining, server,
    skipped,
};
use programs::{client, is_any_missing, program, run_successfully};

/// Starts a relay with a TLS listener. Returns `None`, with a message about the skipped test, without kernel TLS.
fn fixture() -> Option<(Certificate, Relay)> {
    if !has_kernel_tls() {
        skipped("the kernel has no TLS (modprobe tls)");
        return None;
    }
    let certificate = Certificate::new()?;
    let relay = Relay::listen(&[&certificate.listener("auto")]);
    Some((certificate, relay))
}

/// Starts a server that sends all received bytes back after the end of the stream.
fn echo_at_end() -> (SocketAddr, JoinHandle<()>) {
    let (listener, address) = server();
    let serving = std::thread::spawn(move || {
        let mut stream = accept(&listener);
        let bytes = read_all(&mut stream);
        stream.write_all(&bytes).unwrap();
    });
    (address, serving)
}

/// Waits for a TLS session whose `transfer` in `/api/sessions` has this value. Returns its cipher suite.
fn cipher_of(relay: &Relay, transfer: &str) -> Value {
    let has_transfer = |session: &Value| session["tls"]["transfer"] == transfer;
    eventually(&format!("a TLS session with the transfer {transfer}"), || {
        relay.sessions().into_iter().find(has_transfer)
    })["tls"]["cipher"]
        .clone()
}

fn spliced(closed: &Value) -> u64 {
    closed["bytes_spliced"].as_u64().unwrap()
}

/// The relay copies the bytes of sessions whose cipher the kernel does not support.
#[test]
fn streams_of_each_cipher_suite_arrive_whole() {
    let Some((certificate, mut relay)) = fixture() else { return };
    let bytes = pattern(1_000_000);
    for (suite, version, cipher) in [
        (cipher_suite::TLS13_AES_128_GCM_SHA256, Version::Tls13, Cipher::Aes128Gcm),
        (cipher_suite::TLS13_AES_256_GCM_SHA384, Version::Tls13, Cipher::Aes256Gcm),
        (cipher_suite::TLS13_CHACHA20_POLY1305_SHA256, Version::Tls13, Cipher::ChaCha20Poly1305),
        (cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, Version::Tls12, Cipher::Aes128Gcm),
        (cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, Version::Tls12, Cipher::Aes256Gcm),
        (cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, Version::Tls12, Cipher::ChaCha20Poly1305),
    ] {
        let is_spliced = ktls::check_available(version, cipher).is_ok();
        assert!(is_spliced || cipher == Cipher::ChaCha20Poly1305, "kernel TLS has all other ciphers");
        let (address, serving) = echo_at_end();
        let mut client = certificate.client_of_suite(relay.address(), suite).connect(address);
        let transfer = if is_spliced { "spliced" } else { "copied" };
        assert_eq!(cipher_of(&relay, transfer), suite.suite().as_str().unwrap());
        client.send(&bytes);
        client.end();
        let (received, ending) = client.read_remaining();
        join(serving);
        assert!(received == bytes && ending == Some(Ending::Clean), "{suite:?}: {} bytes, {ending:?}", received.len());
        let closed = relay.closed();
        assert_eq!(closed["end"], "finished", "{suite:?}: {closed}");
        assert_eq!(spliced(&closed) > 1_500_000, is_spliced, "{suite:?}: {closed}");
    }
}

/// Forwards one connection to `relay`. The thread returns all bytes that the relay has sent.
fn record_responses(relay: SocketAddr) -> (SocketAddr, JoinHandle<Vec<u8>>) {
    let (listener, address) = server();
    let recording = std::thread::spawn(move || {
        let (mut near, mut far) = (accept(&listener), connect(relay));
        let (mut from_client, mut to_relay) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from_client, &mut to_relay));
        let (mut responses, mut bytes) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = far.read(&mut bytes) {
            responses.extend(&bytes[..count]);
            near.write_all(&bytes[..count]).unwrap();
        }
        responses
    });
    (address, recording)
}

/// rustls and then the kernel encrypt records with the same key. In TLS 1.2 with AES-GCM each record begins with the
/// explicit part of its nonce (RFC 5288).
#[test]
fn nonces_are_used_once() {
    let Some((certificate, relay)) = fixture() else { return };
    let (address, recording) = record_responses(relay.address());
    let (listener, target) = server();
    let serving = std::thread::spawn(move || accept(&listener).write_all(&pattern(300_000)).unwrap());
    let suite = cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    let mut client = certificate.client_of_suite(address, suite).connect(target);
    assert_eq!(client.read_remaining().0.len(), 300_000);
    client.end();
    join(serving);
    let responses = recording.join().unwrap();
    let (mut rest, mut is_encrypted, mut nonces) = (&responses[..], false, Vec::new());
    while let [kind, _, _, high, low, behind @ ..] = rest {
        let (record, next) = behind.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        if is_encrypted {
            nonces.push(&record[..8]);
        }
        // ChangeCipherSpec.
        is_encrypted |= *kind == 20;
        rest = next;
    }
    let count = nonces.len();
    nonces.sort_unstable();
    nonces.dedup();
    assert!(count > 20 && nonces.len() == count, "{} of {count}", nonces.len());
}

/// Tunnels of curl through an HTTPS proxy are spliced.
#[test]
fn curl_downloads_and_uploads_by_a_tunnel() {
    let Some((certificate, mut relay)) = fixture() else { return };
    if is_any_missing(&["curl"]) {
        return;
    }
    let origin = origin::start();
    let proxy = format!("-xhttps://127.0.0.1:{}", relay.address().port());
    let authority = certificate.file().display().to_string();
    let tunnel = [proxy.as_str(), "--proxy-cacert", authority.as_str(), "-p"];
    for path in ["/chunked", "/close"] {
        curl(&[&tunnel[..], &[&format!("http://{origin}{path}")]].concat()).assert_success(200, &origin::long_answer());
        let closed = relay.closed();
        assert!(closed["end"] == "finished" && spliced(&closed) > 100_000, "{closed}");
    }
    let body = certificate.folder.write("body", pattern(1_000_000));
    let data = format!("@{}", body.display());
    let fetched = curl(&[&tunnel[..], &["--data-binary", &data, &format!("http://{origin}/")]].concat());
    fetched.assert_ended(0, 200);
    assert!(fetched.text().contains(&format!("body: 1000000 {}", origin::checksum(&pattern(1_000_000)))));
    let closed = relay.closed();
    assert!(closed["end"] == "finished" && spliced(&closed) > 500_000, "{closed}");
}

/// The TLS stream of Python reports an error if it ends without `close_notify` (`suppress_ragged_eofs=False`).
#[test]
fn python_reads_to_the_end_in_both_versions() {
    const SCRIPT: &str = "
import socket, ssl, sys
port, target, authority, version = sys.argv[1:]
context = ssl.create_default_context(cafile=authority)
context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
stream = context.wrap_socket(socket.create_connection(('127.0.0.1', int(port))), server_hostname='localhost',
                             suppress_ragged_eofs=False)
stream.sendall(f'CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n'.encode())
head = b''
while not head.endswith(b'\\r\\n\\r\\n'):
    head += stream.recv(1)
while received := stream.recv(65536):
    sys.stdout.buffer.write(received)
stream.unwrap()
";
    let Some((certificate, mut relay)) = fixture() else { return };
    if is_any_missing(&["python3"]) {
        return;
    }
    let bytes = pattern(300_000);
    for version in ["TLSv1_2", "TLSv1_3"] {
        let (listener, address) = server();
        let sent = bytes.clone();
        let serving = std::thread::spawn(move || accept(&listener).write_all(&sent).unwrap());
        let (port, target) = (relay.address().port().to_string(), address.to_string());
        let mut python = client("python3", &certificate.folder);
        let received =
            run_successfully(python.args(["-c", SCRIPT, &port, &target]).arg(certificate.file()).arg(version));
        join(serving);
        assert!(received == bytes, "{version}: {} bytes", received.len());
        let closed = relay.closed();
        assert!(closed["end"] == "finished" && spliced(&closed) > 100_000, "{version}: {closed}");
    }
}

/// Asserts that a key update of the client has ended the session.
fn assert_ended_by_key_update(relay: &mut Relay) {
    let closed = relay.closed();
    let detail = "the client asked for new TLS keys, which kernel TLS cannot change";
    assert_eq!((&closed["end"], &closed["detail"]), (&"client_lost".into(), &detail.into()), "{closed}");
}

/// Writes the pending records of the client, in one segment.
fn write_pending_records(client: &mut Client) {
    client.0.conn.write_tls(&mut client.0.sock).unwrap();
}

#[test]
fn key_update_in_a_tunnel_resets_the_session() {
    let Some((certificate, mut relay)) = fixture() else { return };
    for bytes in [6, 300_000] {
        let (listener, address) = server();
        let mut client = certificate.client(relay.address()).connect(address);
        let mut at_server = accept(&listener);
        let before = pattern(bytes);
        client.send(&before);
        assert!(read_exactly(&mut at_server, bytes) == before);
        client.0.conn.refresh_traffic_keys().unwrap();
        client.0.conn.writer().write_all(b"after").unwrap();
        write_pending_records(&mut client);
        assert_eq!(read_remaining(&mut at_server), (Vec::new(), Ending::Reset));
        assert_ended_by_key_update(&mut relay);
    }
}

#[test]
fn key_update_of_openssl_resets_the_session() {
    let Some((certificate, mut relay)) = fixture() else { return };
    let (listener, address) = server();
    let mut openssl = program("openssl", &certificate.folder);
    openssl.args(["s_client", "-tls1_3", "-verify_return_error", "-CAfile"]).arg(certificate.file());
    openssl.args(["-connect", &relay.address().to_string()]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut openssl = openssl.stderr(Stdio::null()).spawn().unwrap();
    let SocketAddr::V4(target) = address else { unreachable!() };
    let request = [&[5, 1, 0, 5, 1, 0, 1][..], &target.ip().octets(), &target.port().to_be_bytes()].concat();
    let mut input = openssl.stdin.take().unwrap();
    input.write_all(&request).unwrap();
    let mut at_server = accept(&listener);
    input.write_all(b"K\n").unwrap();
    assert_eq!(read_remaining(&mut at_server), (Vec::new(), Ending::Reset));
    assert_ended_by_key_update(&mut relay);
    drop(input);
    openssl.wait().unwrap();
}

/// After a key update in the handshake of the proxy, the kernel must decrypt with the new key.
#[test]
fn key_update_before_the_tunnel_reaches_the_kernel() {
    let Some((certificate, mut relay)) = fixture() else { return };
    let (address, serving) = echo_at_end();
    let mut client = certificate.client(relay.address());
    let request = format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    client.0.conn.writer().write_all(request.as_bytes()).unwrap();
    client.0.conn.refresh_traffic_keys().unwrap();
    write_pending_records(&mut client);
    assert!(client.read_exactly(39).starts_with(b"HTTP/1.1 200 "));
    let bytes = pattern(300_000);
    client.send(&bytes);
    client.end();
    assert!(client.read_remaining() == (bytes, Some(Ending::Clean)));
    join(serving);
    assert!(spliced(&relay.closed()) > 0);
}

/// The kernel cannot decrypt a record if the relay has already read a part of it.
#[test]
fn partial_record_keeps_the_session_in_user_space() {
    let Some((certificate, mut relay)) = fixture() else { return };
    let (listener, address) = server();
    let mut client = certificate.client(relay.address());
    let mut records = Vec::new();
    for text in [format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes(), b"in two parts"] {
        client.0.conn.writer().write_all(text).unwrap();
        client.0.conn.write_tls(&mut records).unwrap();
    }
    let (first, second) = records.split_at(records.len() - 5);
    client.0.sock.write_all(first).unwrap();
    let mut at_server = accept(&listener);
    client.0.sock.write_all(second).unwrap();
    assert_eq!(read_exactly(&mut at_server, 12), b"in two parts");
    cipher_of(&relay, "copied");
    let bytes = pattern(300_000);
    client.send(&bytes);
    assert!(read_exactly(&mut at_server, bytes.len()) == bytes);
    drop((client, at_server));
    assert_eq!(spliced(&relay.closed()), 0);
}

/// epoll(7) reports an error for an altered record that arrives alone. The error of an altered record behind a valid
/// record is reported only by splice(2), and only once.
#[test]
fn altered_record_after_spliced_records_resets_the_session() {
    let Some((certificate, mut relay)) = fixture() else { return };
    for header in [[23, 3, 3, 0, 32], [23, 1, 1, 0, 32], [23, 3, 3, 255, 255]] {
        for is_alone in [true, false] {
            let (listener, address) = server();
            let mut client = certificate.client(relay.address()).connect(address);
            let mut at_server = accept(&listener);
            let bytes = pattern(300_000);
            client.send(&bytes);
            assert!(read_exactly(&mut at_server, bytes.len()) == bytes);
            let mut records = Vec::new();
            if !is_alone {
                client.0.conn.writer().write_all(b"record").unwrap();
                client.0.conn.write_tls(&mut records).unwrap();
            }
            client.0.sock.write_all(&[&records, &header[..], &[7; 32]].concat()).unwrap();
            assert_eq!(read_remaining(&mut at_server).1, Ending::Reset, "{header:?} {is_alone}");
            let closed = relay.closed();
            assert!(closed["end"] == "altered" && spliced(&closed) > 0, "{header:?} {is_alone}: {closed}");
        }
    }
}

/// close(2) discards the part of a record that does not fit into the send buffer, and a small send buffer (32 KiB) has
/// room for few records.
#[test]
fn close_notify_follows_the_last_byte_with_a_small_send_buffer() {
    let Some((certificate, _)) = fixture() else { return };
    let keys = certificate.keys();
    let small = "[profile.small]\nsndbuf = \"32KiB\"\n";
    let text = format!("version = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\nprofile = \"small\"\n{keys}{small}");
    let file = certificate.folder.write("ekiden.toml", text);
    let mut relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    let (listener, address) = server();
    let mut client = certificate.client(relay.address()).connect(address);
    let bytes = pattern(1_000_000);
    let sent = bytes.clone();
    let (writer, written) = channel();
    let serving = std::thread::spawn(move || {
        let mut stream = accept(&listener);
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        writer.send(()).unwrap();
        assert_eq!(read_all(&mut stream), b"");
    });
    written.recv().unwrap();
    cipher_of(&relay, "spliced");
    client.0.conn.send_close_notify();
    write_pending_records(&mut client);
    let (received, ending) = client.read_remaining();
    join(serving);
    assert!(received == bytes && ending == Some(Ending::Clean), "{} bytes, {ending:?}", received.len());
    assert_eq!(relay.closed()["end"], "finished");
}

#[test]
fn doctor_reports_kernel_tls_for_tls_listeners_only() {
    let Some(certificate) = Certificate::new() else { return };
    let verdict = |keys: &str| {
        let text = format!("version = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\n{keys}");
        let file = certificate.folder.write("ekiden.toml", text);
        let output = ekiden().args(["doctor", "--json", "-c"]).arg(file).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap();
        findings.iter().find(|finding| finding["check"] == "kernel_tls").map(|finding| finding["verdict"].clone())
    };
    let expected = if has_kernel_tls() { "good" } else { "could" };
    assert_eq!(verdict(&certificate.keys()), Some(expected.into()));
    assert_eq!(verdict(""), None);
}
