//! curl, Python and openssl as clients of an HTTPS proxy.

use crate::certificate::Certificate;
use crate::curl::{assert_closed, curl};
use crate::harness::{Folder, HTPASSWD, Relay, accept, join, server};
use crate::origin;
use crate::programs::{is_any_missing, program, run_successfully, run_to_end};

/// Arguments of curl for the relay as its HTTPS proxy.
fn proxy_arguments(certificate: &Certificate, relay: &Relay) -> [String; 3] {
    let authority = certificate.file().display().to_string();
    [format!("-xhttps://127.0.0.1:{}", relay.address().port()), "--proxy-cacert".to_owned(), authority]
}

#[test]
fn curl_forwards_and_tunnels() {
    let Some(certificate) = Certificate::new() else { return };
    if is_any_missing(&["curl"]) {
        return;
    }
    let origin = origin::start();
    for kind in ["auto", "http"] {
        let mut relay = Relay::listen(&[&certificate.listener(kind)]);
        let proxy = proxy_arguments(&certificate, &relay);
        let proxy = proxy.each_ref().map(String::as_str);
        for (path, tunnel) in [("/chunked", false), ("/close", false), ("/chunked", true)] {
            let url = format!("http://{origin}{path}");
            let mut arguments = [&proxy[..], &[&url]].concat();
            arguments.extend(tunnel.then_some("-p"));
            curl(&arguments).assert_success(200, &origin::long_answer());
            assert_closed(&relay.closed(), "finished", &origin.to_string(), "direct");
        }
        // Two uploads on one connection.
        let url = format!("http://{origin}/");
        let body = "x".repeat(100_000);
        let fetched = curl(&[&proxy[..], &["-d", &body, &url, &url]].concat());
        fetched.assert_ended(0, 200);
        assert_eq!(fetched.transfers.len(), 2, "{}", fetched.err);
        let sum = format!("body: 100000 {}", origin::checksum(body.as_bytes()));
        assert_eq!(fetched.text().matches(&sum).count(), 2, "{}", fetched.text());
        assert_eq!(relay.closed()["end"], "finished", "both requests were one session");
    }
}

#[test]
fn curl_sends_its_password_inside_of_tls() {
    let Some(certificate) = Certificate::new() else { return };
    if is_any_missing(&["curl"]) {
        return;
    }
    let folder = Folder::new();
    let users = folder.write("users", HTPASSWD);
    let relay = Relay::listen(&[&format!("{}&users={}", certificate.listener("auto"), users.display())]);
    let origin = origin::start();
    let proxy = proxy_arguments(&certificate, &relay);
    let url = format!("http://{origin}/");
    let as_user = |user: &str| curl(&[&proxy[0], &proxy[1], &proxy[2], "--proxy-user", user, &url]);
    as_user("ann:wrong").assert_ended(0, 407);
    as_user("ann:correct horse").assert_ended(0, 200);
    let fetched = curl(&[&proxy[0], &url]);
    assert_eq!(fetched.code, 60, "a certificate that curl does not know is refused: {}", fetched.err);
}

/// A tunnel of Python's ssl module, with another TLS stream inside the tunnel.
#[test]
fn python_tunnels_tls_in_tls() {
    const SCRIPT: &str = "
import socket, ssl, sys
port, target, authority = sys.argv[1:]
context = ssl.create_default_context(cafile=authority)
outer = context.wrap_socket(socket.create_connection(('127.0.0.1', int(port))), server_hostname='localhost')
outer.sendall(f'CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n'.encode())
head = b''
while not head.endswith(b'\\r\\n\\r\\n'):
    head += outer.recv(1)
assert head.startswith(b'HTTP/1.1 200 '), head
incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
inner = context.wrap_bio(incoming, outgoing, server_hostname='localhost')
def run(step):
    while True:
        try:
            result = step()
            outer.sendall(outgoing.read())
            return result
        except ssl.SSLWantReadError:
            outer.sendall(outgoing.read())
            incoming.write(outer.recv(65536))
run(inner.do_handshake)
run(lambda: inner.write(b'GET http://origin/ HTTP/1.1\\r\\nHost: origin\\r\\nConnection: close\\r\\n\\r\\n'))
print(run(lambda: inner.read(12)).decode())
try:
    while run(lambda: inner.read(65536)):
        pass
except ssl.SSLZeroReturnError:
    pass
assert outer.recv(1) == b''
outer.unwrap()
";
    let Some(certificate) = Certificate::new() else { return };
    if is_any_missing(&["python3"]) {
        return;
    }
    // The inner server is a TLS listener of a second relay, which answers requests for unknown names with an error.
    let inner = Relay::listen(&[&certificate.listener("http")]);
    let mut relay = Relay::listen(&[&certificate.listener("auto")]);
    let (port, target) = (relay.address().port().to_string(), inner.address().to_string());
    let mut python = program("python3", &certificate.folder);
    let output = run_successfully(python.args(["-c", SCRIPT, &port, &target]).arg(certificate.file()));
    let answer = String::from_utf8(output).unwrap();
    assert!(answer.starts_with("HTTP/1.1 50"), "{answer}");
    let closed = relay.closed();
    assert_eq!((&closed["end"], &closed["tls"]), (&"finished".into(), &"1.3".into()), "{closed}");
}

/// TLS 1.2 is the newest version of older clients.
#[test]
fn openssl_tunnels_by_tls_1_2() {
    let Some(certificate) = Certificate::new() else { return };
    let relay = Relay::listen(&[&certificate.listener("auto")]);
    let (listener, address) = server();
    let serving = std::thread::spawn(move || {
        // openssl exits when the server closes.
        std::io::Write::write_all(&mut accept(&listener), b"greeting\n").unwrap();
    });
    let mut openssl = program("openssl", &certificate.folder);
    openssl.args(["s_client", "-quiet", "-tls1_2", "-verify_return_error", "-CAfile"]).arg(certificate.file());
    openssl.args(["-connect", &relay.address().to_string()]);
    let request = certificate.folder.write("request", format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    let output = run_to_end(openssl.stdin(std::fs::File::open(request).unwrap()));
    join(serving);
    assert!(output.out.ends_with(b"\r\n\r\ngreeting\n"), "{} {}", String::from_utf8_lossy(&output.out), output.err);
}
