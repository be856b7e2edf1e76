//! Downloads of files and directories by FTP: direct, through SOCKS, and over hops.

use std::io::Write;

use super::harness::*;
use super::scripted::*;
use super::vsftpd::{Vsftpd, *};

#[test]
fn files_have_length_type_and_date() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let mut relay = http_relay();
    vsftpd.write("pub/a file.txt", "hello");
    let url = vsftpd.url("/pub/a%20file.txt");
    // Two requests over one connection, which a response with a length keeps open.
    let got = get(&relay, &url, &[&url]);
    assert_eq!((got.status, got.exit, got.body.as_slice()), (200, 0, b"hellohello".as_slice()), "{got:?}");
    for field in ["Content-Length: 5", "Content-Type: text/plain", "Last-Modified: ", " GMT"] {
        assert!(got.head.contains(field), "{field} in {}", got.head);
    }
    let logged = request_event(&mut relay);
    let expected = (&logged["method"], &logged["url"], &logged["status"]);
    assert_eq!(expected, (&"GET".into(), &url.clone().into(), &200.into()));
    let closed = relay.closed();
    assert_eq!((&closed["end"], &closed["target"]), (&"finished".into(), &vsftpd.address.to_string().into()));
    assert!(closed["up"].is_object() && closed["server"].is_string(), "{closed}");
    assert_eq!(request_event(&mut relay)["session"], logged["session"], "curl opened a second connection");

    let head = get(&relay, &url, &["-I"]);
    assert_eq!((head.status, head.exit), (200, 0));
    assert!(head.head.contains("Content-Length: 5"), "{}", head.head);
    vsftpd.write("pub/empty", "");
    let empty = get(&relay, &vsftpd.url("/pub/empty"), &[]);
    assert_eq!((empty.status, empty.exit, empty.body.len()), (200, 0, 0));
}

#[test]
fn big_files_are_spliced() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let mut relay = http_relay();
    let bytes = pattern(20_000_000);
    vsftpd.write("pub/big", &bytes);
    let got = get(&relay, &vsftpd.url("/pub/big"), &[]);
    assert!(got.exit == 0 && got.body == bytes, "{} bytes arrived", got.body.len());
    let spliced = relay.closed()["bytes_spliced"].as_u64().unwrap();
    assert!(spliced > 19_000_000, "only {spliced} bytes were spliced");

    let file = vsftpd.folder.write("to-send", &bytes);
    let sent = get(&relay, &vsftpd.url("/incoming/big"), &["-T", file.to_str().unwrap()]);
    assert_eq!((sent.status, sent.exit), (201, 0), "{}", sent.head);
    assert!(sent.head.contains("100 Continue"), "{}", sent.head);
    assert!(std::fs::read(vsftpd.path("incoming/big")).unwrap() == bytes);
    let spliced = relay.closed()["bytes_spliced"].as_u64().unwrap();
    assert!(spliced > 19_000_000, "only {spliced} bytes were spliced");
}

#[test]
fn directories_are_pages_of_links() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let relay = http_relay();
    vsftpd.write("pub/<b>&\"x\" ü.html", "12345");
    std::fs::create_dir(vsftpd.path("pub/deeper")).unwrap();
    // 500 entries do not fit into one chunk of the page.
    (0..500).for_each(|number| vsftpd.write(&format!("pub/deeper/{number}"), ""));
    let many = String::from_utf8(get(&relay, &vsftpd.url("/pub/deeper/"), &[]).body).unwrap();
    assert!((0..500).all(|number| many.contains(&format!("<a href=\"{number}\">{number}</a>"))), "{many}");
    let page = get(&relay, &vsftpd.url("/pub/"), &[]);
    assert_eq!((page.status, page.exit), (200, 0));
    let text = String::from_utf8(page.body).unwrap();
    assert!(page.head.contains("Content-Type: text/html; charset=utf-8"), "{}", page.head);
    let link = "%3Cb%3E%26%22x%22%20%C3%BC.html";
    let row = format!("<a href=\"{link}\">&lt;b&gt;&amp;&quot;x&quot; ü.html</a></td><td>5</td><td>");
    assert!(text.contains(&row), "{text}");
    assert!(text.contains("<a href=\"../\">") && text.contains("<a href=\"deeper/\">"), "{text}");
    assert!(text.ends_with("</html>\n"), "{text}");
    assert_eq!(get(&relay, &vsftpd.url(&format!("/pub/{link}")), &[]).body, b"12345");

    let redirect = get(&relay, &vsftpd.url("/pub"), &[]);
    assert_eq!(redirect.status, 301);
    assert!(redirect.head.contains(&format!("Location: {}\r\n", vsftpd.url("/pub/"))), "{}", redirect.head);
    let top = get(&relay, &vsftpd.url(""), &[]);
    assert!(String::from_utf8_lossy(&top.body).contains("<a href=\"incoming/\">"));
    assert_eq!(get(&relay, &vsftpd.url("/pub/"), &["-I"]).status, 200);
    // `%2F` and `//` both denote an absolute path, from the root of the server.
    for path in ["/%2Fpub/deeper/", "//pub/deeper/"] {
        assert_eq!(get(&relay, &vsftpd.url(path), &["--path-as-is"]).status, 200);
    }
    // HTTP/1.0 has no chunked framing: the page ends with the connection.
    let old = get(&relay, &vsftpd.url("/pub/"), &["-0"]);
    assert!(old.body.ends_with(b"</html>\n") && !old.head.contains("chunked"), "{}", old.head);
}

#[test]
fn missing_files_return_404_and_keep_the_connection() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let mut relay = http_relay();
    let missing = vsftpd.url("/pub/missing");
    let got = get(&relay, &missing, &["-o", "/dev/null", &missing]);
    assert_eq!((got.status, got.exit), (404, 0));
    assert!(String::from_utf8(got.body).unwrap().contains("The FTP server says: 550"));
    let sessions = [request_event(&mut relay), request_event(&mut relay)].map(|event| event["session"].clone());
    assert_eq!(sessions[0], sessions[1], "curl opened a second connection");
    assert_eq!(get(&relay, &vsftpd.url("/missing/"), &[]).status, 404);
    assert_eq!(get(&relay, &missing, &["-I"]).status, 404);
}

#[test]
fn pasv_is_used_without_epsv_and_its_address_is_ignored() {
    let (address, commands) = scripted(Script { supports_epsv: false, ..WELL_BEHAVED });
    let relay = http_relay();
    let got = get(&relay, &format!("ftp://u:p@{address}/a/%E9;type=i"), &["-i"]);
    assert_eq!((got.status, got.exit), (200, 0), "{got:?}");
    assert!(got.head.contains("Last-Modified: Thu, 29 Feb 2024 12:34:56 GMT"), "{}", got.head);
    let commands = commands.lock().unwrap().clone();
    let expected = ["EPSV", "PASV", "RETR a/\u{e9}"];
    let transfer: Vec<_> = commands.iter().filter(|line| expected.contains(&line.as_str())).collect();
    assert_eq!(transfer, expected, "{commands:?}");
}

#[test]
fn data_connection_uses_the_address_of_the_control_connection() {
    let (address, _) = scripted(WELL_BEHAVED);
    let got = get(&http_relay(), &format!("ftp://localhost:{}/file", address.port()), &[]);
    assert_eq!((got.exit, got.body.as_slice()), (0, b"contents".as_slice()));
}

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
fn control_and_data_connections_use_the_hops() {
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
fn ftp_url_is_forwarded_to_a_last_http_hop() {
    let (hop, address) = server();
    let relay = Relay::run(&["-L", "http://127.0.0.1:0", "-F", &format!("http://{address}")], 1);
    let mut client = send_request(&relay, "GET ftp://me:pw@ftp.example:2121/a%20b;type=a HTTP/1.1\r\n\r\n");
    let mut proxy = accept(&hop);
    let head = read_head(&mut proxy);
    assert!(head.starts_with("GET ftp://me:pw@ftp.example:2121/a%20b;type=a HTTP/1.1\r\n"), "{head}");
    proxy.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    assert!(read_head(&mut client).starts_with("HTTP/1.1 200 OK\r\n"));
}
