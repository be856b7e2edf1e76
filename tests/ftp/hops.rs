//! FTP through SOCKS, and by hops.

use std::io::Write;

use crate::curl::*;
use crate::harness::*;
use crate::vsftpd::Vsftpd;

#[test]
fn ftp_works_through_socks() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let relay = Relay::listen(&["auto://127.0.0.1:0"]);
    vsftpd.write("pub/file", "hello");
    let proxy = relay.address().to_string();
    for kind in ["--socks5", "--socks5-hostname", "--socks4", "--socks4a"] {
        for passive in ["--ftp-pasv", "--disable-epsv"] {
            let got = curl(&[kind, &proxy, passive, &vsftpd.url("/pub/file")]);
            assert_eq!((got.exit, got.body.as_slice()), (0, b"hello".as_slice()), "{kind} {passive}");
        }
    }
}

#[test]
fn both_connections_go_through_the_hops() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let mut hop = Relay::listen(&["socks://127.0.0.1:0"]);
    let forward = format!("socks5://{}", hop.address());
    let relay = Relay::run(&["-L", "http://127.0.0.1:0", "-F", &forward], 1);
    vsftpd.write("pub/file", "hello");
    let got = get(&relay, &vsftpd.url("/pub/file"), &[]);
    assert_eq!((got.exit, got.body.as_slice()), (0, b"hello".as_slice()));
    let mut targets = [hop.closed(), hop.closed()].map(|closed| closed["target"].as_str().unwrap().to_owned());
    targets.sort_by_key(|target| *target != vsftpd.address.to_string());
    assert_eq!(targets[0], vsftpd.address.to_string());
    assert!(targets[1].starts_with("127.0.0.1:") && targets[1] != targets[0], "{targets:?}");
}

#[test]
fn a_last_http_hop_is_asked_for_the_url_itself() {
    let (hop, address) = server();
    let relay = Relay::run(&["-L", "http://127.0.0.1:0", "-F", &format!("http://{address}")], 1);
    let mut client = ask(&relay, "GET ftp://me:pw@ftp.example:2121/a%20b;type=a HTTP/1.1\r\n\r\n");
    let mut proxy = accept(&hop);
    let head = read_head(&mut proxy);
    assert!(head.starts_with("GET ftp://me:pw@ftp.example:2121/a%20b;type=a HTTP/1.1\r\n"), "{head}");
    proxy.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    assert!(read_head(&mut client).starts_with("HTTP/1.1 200 OK\r\n"));
}
