//! Refused requests, and the responses to the client.

use std::io::Write;

use super::vsftpd::*;
use crate::harness::*;
use crate::scripted::*;
use crate::vsftpd::Vsftpd;

#[test]
fn wrong_passwords_return_401() {
    let Some(vsftpd) = Vsftpd::start() else { return };
    let mut relay = http_relay();
    vsftpd.write("pub/file", "hello");
    let wrong = format!("ftp://ftp:wrong%40password@{}/pub/file", vsftpd.address);
    let got = get(&relay, &wrong, &[]);
    assert_eq!(got.status, 401);
    let challenge = format!("WWW-Authenticate: Basic realm=\"ftp://{}\"\r\n", vsftpd.address);
    assert!(got.head.contains(&challenge), "{}", got.head);
    let logged = request_event(&mut relay).to_string();
    assert!(!logged.contains("wrong"), "{logged}");
    assert_eq!(get(&relay, &format!("ftp://nobody:x@{}/pub/file", vsftpd.address), &[]).status, 401);
    let right = get(&relay, &vsftpd.url("/pub/file"), &["-H", "Authorization: Basic ZnRwOnJpZ2h0"]);
    assert_eq!(right.body, b"hello");
    let field = get(&relay, &vsftpd.url("/pub/file"), &["-H", "Authorization: Basic ZnRwOndyb25nQHBhc3N3b3Jk"]);
    assert_eq!(field.status, 401);
}

#[test]
fn commands_cannot_be_smuggled_into_the_control_connection() {
    let (address, commands) = scripted(WELL_BEHAVED);
    let mut relay = http_relay();
    for url in ["/a%0D%0ADELE%20b", "/a%0ADELE%20b", "/a%00b", "/%0d/"] {
        let got = get(&relay, &format!("ftp://{address}{url}"), &["-H", "Authorization:"]);
        assert_eq!(got.status, 400, "{url}");
        assert_eq!(relay.closed()["end"], "bad_handshake");
    }
    for user in ["u%0d%0aDELE%20b:p", "u:p%0aDELE%20b"] {
        let answer = read_all(&mut send_request(&relay, &format!("GET ftp://{user}@{address}/ HTTP/1.1\r\n\r\n")));
        assert!(answer.starts_with(b"HTTP/1.1 400 "), "{user}");
    }
    // Decoded: "u\r\nDELE b" and "p".
    let field = ["-H", "Authorization: Basic dQ0KREVMRSBiOnA="];
    assert_eq!(get(&relay, &format!("ftp://{address}/"), &field).status, 400);
    assert!(commands.lock().unwrap().is_empty());
}

/// Regression: the server of FTP got the HTTP request, with its cookies.
#[test]
fn requests_for_a_proxy_are_not_sent_to_the_server_of_ftp() {
    let (address, commands) = scripted(WELL_BEHAVED);
    let (folder, proxy) = (Folder::new(), unused_address());
    let text = format!(
        "version = 1\n[[relay]]\nname = \"proxy\"\nurl = \"http://{proxy}\"\n\
         [[route]]\npath = [\"proxy\", \"direct\"]\n[[listener]]\nbind = \"127.0.0.1:0\"\n"
    );
    let file = folder.write("ekiden.toml", text);
    let relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    assert_eq!(get(&relay, &format!("ftp://{address}/file"), &[]).status, 502);
    assert!(commands.lock().unwrap().is_empty());
}

#[test]
fn data_connections_obey_the_access_rules() {
    let (_listener, forbidden) = server();
    let (address, _) = scripted(Script { passive_port: Some(forbidden.port()), ..WELL_BEHAVED });
    let mut relay = Relay::listen(&[&format!("http://127.0.0.1:0?deny=127.0.0.0/8:{}", forbidden.port())]);
    assert_eq!(get(&relay, &format!("ftp://{address}/file"), &[]).status, 403);
    assert_eq!(relay.closed()["end"], "denied");
}

#[test]
fn connection_failures_return_502_and_silent_servers_504() {
    let mut relay = http_relay();
    assert_eq!(get(&relay, &format!("ftp://{}/", unused_address()), &[]).status, 502);
    assert_eq!(relay.closed()["end"], "refused");
    let server_of_http = serve(|mut stream| drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")));
    assert_eq!(get(&relay, &format!("ftp://{server_of_http}/"), &[]).status, 502);

    // A short timeout suits only a server that sends nothing.
    let folder = Folder::new();
    let text = "version = 1\n[timeouts]\nconnect = \"300ms\"\n[[listener]]\nbind = \"127.0.0.1:0\"\nkind = \"http\"\n";
    let file = folder.write("ekiden.toml", text);
    let mut relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    let (_silent, address) = server();
    assert_eq!(get(&relay, &format!("ftp://{address}/"), &[]).status, 504);
    assert_eq!(relay.closed()["end"], "timed_out");
}

#[test]
fn other_methods_are_not_allowed() {
    let (address, commands) = scripted(WELL_BEHAVED);
    for method in ["DELETE", "POST", "OPTIONS", "put"] {
        let got = get(&http_relay(), &format!("ftp://{address}/file"), &["-X", method]);
        assert_eq!(got.status, 405, "{method}");
        assert!(got.head.contains("Allow: GET, HEAD, PUT\r\n"), "{}", got.head);
    }
    assert!(commands.lock().unwrap().is_empty());
}
