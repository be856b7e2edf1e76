//! PROXY headers with the TLS parameters of the client: sent to targets, and received from a load balancer.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;

use crate::certificate::Certificate;
use crate::client_certificates::Authority;
use crate::harness::{KillOnDrop, Relay, accept, read_exactly, server};
use crate::programs::{client, is_any_missing};
use crate::servers::Haproxy;

/// Starts a relay that sends PROXY headers of version 2 to targets, and accepts client certificates of `authority`.
fn sending_relay(certificate: &Certificate, authority: &Authority) -> Relay {
    let text = format!(
        "version = 1\n[[listener]]\nkind = \"http\"\nbind = \"127.0.0.1:0\"\n{}tls_clients = \"{}\"\n\
         [[route]]\npath = [\"direct\"]\nsend_proxy = \"v2\"\n",
        certificate.keys(),
        authority.file("authority").display()
    );
    let file = certificate.folder.write("ekiden.toml", text);
    Relay::run(&["-c", file.to_str().unwrap()], 1)
}

/// Starts haproxy, which terminates TLS of its clients and reports it to `server` in PROXY headers.
fn balancer(certificate: &Certificate, authority: &Authority, server: SocketAddr) -> Haproxy {
    let both = [certificate.file(), certificate.key()].map(|file| std::fs::read(file).unwrap()).concat();
    let both = certificate.folder.write_with_mode("both.pem", both, 0o600);
    let clients = authority.file("authority");
    let tls = format!("ssl crt {} ca-file {} verify required", both.display(), clients.display());
    Haproxy::start(&tls, server, "send-proxy-v2 proxy-v2-options ssl,cert-cn,ssl-cipher")
}

/// Connects `openssl s_client` with these options, and sends `request`.
fn start_client(certificate: &Certificate, to: SocketAddr, options: &[&str], request: &str) -> KillOnDrop {
    let mut openssl = client("openssl", &certificate.folder);
    openssl.args(["s_client", "-quiet", "-connect", &to.to_string()]).args(options);
    let mut child = openssl.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(request.as_bytes()).unwrap();
    KillOnDrop(child)
}

/// Accepts a connection, and reads the TLVs of its PROXY header, which must be of version 2 and for IPv4.
fn read_tlvs(listener: &TcpListener) -> Vec<u8> {
    let mut stream = accept(listener);
    let fixed = read_exactly(&mut stream, 16);
    assert!(fixed.starts_with(b"\r\n\r\n\0\r\nQUIT\n\x21\x11"), "{fixed:?}");
    read_exactly(&mut stream, usize::from(u16::from_be_bytes([fixed[14], fixed[15]]))).split_off(12)
}

/// The relay reports the same bytes as haproxy for the same client.
#[test]
fn proxy_header_reports_client_tls_like_haproxy() {
    let Some(certificate) = Certificate::new() else { return };
    if is_any_missing(&["haproxy"]) {
        return;
    }
    let (authority, (listener, address)) = (Authority::new(), server());
    let relay = sending_relay(&certificate, &authority);
    let balancer = balancer(&certificate, &authority, address);
    let [_, chain, _, key] = authority.sign("named", &["-subj", "/O=Example/CN=alice"]);
    let connect = format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    for chosen in [
        ["-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"],
        ["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
        ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"],
        ["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"],
    ] {
        let options = ["-cert", chain.as_str(), "-key", key.as_str()].into_iter().chain(chosen).collect::<Vec<_>>();
        let [reported, expected] =
            [(relay.address(), connect.as_str()), (balancer.address, "")].map(|(to, request)| {
                let _client = start_client(&certificate, to, &options, request);
                read_tlvs(&listener)
            });
        assert_eq!(reported, expected, "{chosen:?}: {}", String::from_utf8_lossy(&reported));
        let name = b"\x22\0\x05alice";
        assert!(reported.windows(name.len()).any(|bytes| bytes == name), "{reported:?}");
    }
}

/// The report must not reach the target.
#[test]
fn tls_report_of_a_load_balancer_is_accepted() {
    let Some(certificate) = Certificate::new() else { return };
    if is_any_missing(&["haproxy"]) {
        return;
    }
    let (authority, (listener, address)) = (Authority::new(), server());
    let relay = Relay::listen(&[&format!("tcp://127.0.0.1:0/{address}?proxy_protocol=127.0.0.1")]);
    let balancer = balancer(&certificate, &authority, relay.address());
    let [_, chain, _, key] = authority.sign("named", &["-subj", "/CN=alice"]);
    let _client = start_client(&certificate, balancer.address, &["-cert", &chain, "-key", &key], "hello");
    assert_eq!(read_exactly(&mut accept(&listener), 5), b"hello");
}
