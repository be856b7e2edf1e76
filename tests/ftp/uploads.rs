//! Uploads by FTP: the server stores a complete file or no file.

use std::io::{ErrorKind, Read, Write};

use super::vsftpd::*;
use crate::harness::*;
use crate::scripted::*;
use crate::vsftpd::Vsftpd;

#[test]
fn uploads_arrive_whole() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let relay = http_relay();
    let bytes = pattern(300_000);
    let file = vsftpd.folder.write("to-send", &bytes);
    let file = file.to_str().unwrap();
    for (name, more) in [
        ("length", vec!["-H", "Expect:"]),
        ("waiting", vec!["-H", "Expect: 100-continue"]),
        ("chunked", vec!["-H", "Transfer-Encoding: chunked"]),
    ] {
        let got = get(&relay, &vsftpd.url(&format!("/incoming/{name}")), &[&["-T", file], more.as_slice()].concat());
        assert_eq!((got.status, got.exit), (201, 0), "{name}: {}", got.head);
        assert!(std::fs::read(vsftpd.path(&format!("incoming/{name}"))).unwrap() == bytes, "{name}");
    }
    let (first, second) = (vsftpd.url("/incoming/first"), vsftpd.url("/incoming/second"));
    let both = get(&relay, &first, &["-T", file, "-T", file, &second, "-w", "%{stderr}%{num_connects} %{http_code}"]);
    assert_eq!((both.status, both.exit), (201, 0));
    assert!(both.stderr.ends_with("0 201"), "curl opened a second connection: {}", both.stderr);
    assert_eq!(get(&relay, &vsftpd.url("/incoming/empty"), &["-T", "/dev/null"]).status, 201);
    assert_eq!(std::fs::read(vsftpd.path("incoming/empty")).unwrap(), b"");
    assert_eq!(get(&relay, &vsftpd.url("/pub/no"), &["-T", file]).status, 403);
    let part = ["-T", file, "-H", "Content-Range: bytes 1-2/3"];
    assert_eq!(get(&relay, &vsftpd.url("/incoming/part"), &part).status, 400);
}

#[test]
fn refused_upload_gets_the_error_instead_of_100_continue() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let relay = http_relay();
    let url = vsftpd.url("/pub/no");
    let put = format!("PUT {url} HTTP/1.1\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n");
    let answer = read_all(&mut send_request(&relay, &put));
    assert!(answer.starts_with(b"HTTP/1.1 403 "), "{}", String::from_utf8_lossy(&answer));
}

/// In FTP, the end of the data connection is the end of the file. Regression: the server stored the first part of an
/// incomplete upload as a complete file.
#[test]
fn incomplete_uploads_leave_no_file() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let relay = http_relay();
    let put = |framing: &str| {
        format!("PUT {} HTTP/1.1\r\n{framing}\r\nExpect: 100-continue\r\n\r\n", vsftpd.url("/incoming/half"))
    };
    let begin = |framing: &str| {
        let mut client = send_request(&relay, &put(framing));
        assert_eq!(read_head(&mut client), "HTTP/1.1 100 Continue\r\n\r\n");
        assert!(vsftpd.path("incoming/half").exists());
        client
    };
    let wait_removed = || eventually("the file's removal", || (!vsftpd.path("incoming/half").exists()).then_some(()));

    let mut client = begin("Content-Length: 1000");
    client.write_all(&[b'x'; 500]).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(read_head(&mut client).starts_with("HTTP/1.1 400 "));
    wait_removed();

    let mut client = begin("Transfer-Encoding: chunked");
    client.write_all(b"5\r\nhello\r\nnonsense\r\n").unwrap();
    let error = client.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    wait_removed();

    let client = begin("Content-Length: 1000");
    reset(client);
    wait_removed();
}

#[test]
fn full_disk_of_the_server_returns_507() {
    let (address, _) = scripted(Script { ends_with: "552 Disk full.", ..WELL_BEHAVED });
    let folder = Folder::new();
    let file = folder.write("to-send", pattern(3_000_000));
    let got = get(&http_relay(), &format!("ftp://{address}/file"), &["-T", file.to_str().unwrap()]);
    assert_eq!(got.status, 507, "{got:?}");
}
