//! SOCKS5 and HTTP hops: chains, failures and their reported causes, credentials, and name resolution.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;

use std::io::{Read, Write};
use std::net::TcpStream;

use harness::*;

fn assert_greeting(mut stream: TcpStream) {
    assert_eq!(read_exactly(&mut stream, 5), b"hello");
}

/// Starts a relay whose path has this single hop.
fn relay_with_hop(hop: &str) -> Relay {
    Relay::run(&["-L", "auto://127.0.0.1:0", "-F", hop], 1)
}

/// Connects to an existing target through a failing hop. Returns the SOCKS reply code and the logged `end`.
fn failure(hop: &str) -> (u8, String) {
    let mut relay = relay_with_hop(hop);
    let reply = socks5(relay.address(), greeter("hello")).map(|_| ()).unwrap_err();
    let closed = relay.closed();
    assert_eq!(closed["path"].as_str().unwrap(), hop.replace("me:secret@", ""), "{closed}");
    (reply, closed["end"].as_str().unwrap().to_owned())
}

#[test]
fn socks_and_http_hop_chains_carry_server_first_protocols() {
    let far = Relay::listen(&["auto://127.0.0.1:0"]);
    let socks = format!("socks5://{}", far.address());
    let http = format!("http://{}", far.address());
    for hops in [vec![&socks], vec![&http], vec![&socks, &http], vec![&http, &socks], vec![&http, &http, &socks]] {
        let mut arguments = vec!["-L", "auto://127.0.0.1:0"];
        hops.iter().for_each(|hop| arguments.extend(["-F", hop]));
        let relay = Relay::run(&arguments, 1);
        assert_greeting(socks5(relay.address(), greeter("hello")).unwrap());
    }
}

#[test]
fn errors_of_the_last_hop_reach_the_client() {
    let far = Relay::listen(&["auto://127.0.0.1:0?deny=198.51.100.0/24"]);
    for scheme in ["socks5", "http"] {
        let mut relay = relay_with_hop(&format!("{scheme}://{}", far.address()));
        assert_eq!(socks5(relay.address(), unused_address()).map(|_| ()), Err(5), "refused, by {scheme}");
        assert_eq!(relay.closed()["end"], "refused");
        let forbidden = "198.51.100.1:80".parse().unwrap();
        assert_eq!(socks5(relay.address(), forbidden).map(|_| ()), Err(2), "denied, by {scheme}");
        assert_eq!(relay.closed()["end"], "denied_by_hop");
        let name = [&[5, 1, 0, 3, 14][..], b"nosuch.invalid", &[0, 80]].concat();
        assert_eq!(socks5_request(relay.address(), &name).map(|_| ()), Err(4), "not found, by {scheme}");
    }
}

#[test]
fn unreachable_hop_is_not_reported_as_an_unreachable_target() {
    assert_eq!(failure(&format!("socks5://{}", unused_address())), (1, "refused".into()));
    assert_eq!(failure(&format!("http://{}", unused_address())), (1, "refused".into()));
}

/// Asserts that the responses to a CONNECT and a GET have `sentence` in the field `Proxy-Status` and in the body.
fn check_answers(relay: &Relay, sentence: &str) {
    let target = greeter("hello");
    for request in [format!("CONNECT {target}"), format!("GET http://{target}/")] {
        let mut client = connect(relay.address());
        write!(client, "{request} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
        let answer = String::from_utf8(read_all(&mut client)).unwrap();
        let (head, page) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 502 "), "{request}: {head}");
        let field = format!("\r\nProxy-Status: ekiden; error=destination_unavailable; details=\"{sentence}\"\r\n");
        assert!(format!("{head}\r\n").contains(&field), "{request}: {head}");
        assert_eq!(page, format!("{sentence}\n"), "{request}");
    }
}

#[test]
fn error_response_names_the_failed_hop_and_the_cause() {
    for scheme in ["socks5", "http"] {
        let hop = format!("{scheme}://{}", unused_address());
        check_answers(
            &relay_with_hop(&hop),
            &format!("The hop {hop} refused the connection: nothing listens on its port."),
        );
    }
}

/// The response and the log of the relay quote the cause that the proxy states in `Proxy-Status`.
#[test]
fn proxy_status_of_an_http_hop_is_quoted() {
    let dead = format!("socks5://{}", unused_address());
    let far = relay_with_hop(&dead);
    let hop = format!("http://{}", far.address());
    let mut relay = relay_with_hop(&hop);
    let sentence = format!("could not connect: The hop {dead} refused the connection: nothing listens on its port");
    let mut client = connect(relay.address());
    write!(client, "CONNECT 192.0.2.1:80 HTTP/1.1\r\nHost: 192.0.2.1:80\r\n\r\n").unwrap();
    let answer = String::from_utf8(read_all(&mut client)).unwrap();
    assert!(answer.ends_with(&format!("\r\n\r\nThe hop {hop} {sentence}.\n")), "{answer}");
    let closed = relay.closed();
    assert_eq!((&closed["end"], &closed["detail"]), (&"hop_failed".into(), &format!("hop {hop}, {sentence}").into()));
}

#[test]
fn unreachable_second_hop_is_not_reported_as_a_refused_target() {
    let far = Relay::listen(&["auto://127.0.0.1:0"]);
    for (first, second) in [("socks5", "http"), ("http", "socks5"), ("socks5", "socks5"), ("http", "http")] {
        let hop = format!("{second}://{}", unused_address());
        let hops = ["-L", "auto://127.0.0.1:0", "-F", &format!("{first}://{}", far.address()), "-F", &hop];
        let mut relay = Relay::run(&hops, 1);
        assert_eq!(socks5(relay.address(), greeter("hello")).map(|_| ()), Err(1), "{first}, {second}");
        let closed = relay.closed();
        assert_eq!((&closed["end"], &closed["detail"]), (&"refused".into(), &format!("hop {hop}").into()));
        check_answers(&relay, &format!("The hop {hop} refused the connection: nothing listens on its port."));
    }
}

/// Clients of an open listener get the cause of a failure, but not the address of the hop.
#[test]
fn open_listeners_hide_hop_addresses_in_errors() {
    let hop = unused_address();
    let relay =
        Relay::run(&["-L", "auto://0.0.0.0:0?allow_open=true&allow_private=true", "-F", &format!("socks5://{hop}")], 1);
    check_answers(&relay, "A hop of this relay's path refused the connection: nothing listens on its port.");
}

#[test]
fn non_proxy_hops_are_reported_as_protocol_errors() {
    let web = serve(|mut stream| {
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n");
    });
    assert_eq!(failure(&format!("socks5://{web}")), (1, "hop_protocol".into()));
    assert_eq!(failure(&format!("http://{web}")), (1, "hop_protocol".into()));
    let mail = serve(|mut stream| {
        let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
        let _ = stream.read(&mut [0; 1024]);
    });
    assert_eq!(failure(&format!("socks5://{mail}")), (1, "hop_protocol".into()));
    assert_eq!(failure(&format!("http://{mail}")), (1, "hop_protocol".into()));
}

#[test]
fn hop_that_ends_the_connection_without_a_reply_is_reported() {
    assert_eq!(failure(&format!("http://{}", serve(drop))), (1, "reset".into()));
    // The server reads the request before it closes, because a close with unread bytes sends a reset.
    let closing = serve(|mut stream| {
        let _ = stream.read(&mut [0; 1024]);
    });
    assert_eq!(failure(&format!("http://{closing}")), (1, "reset".into()));
    assert_eq!(failure(&format!("socks5://{closing}")), (1, "hop_protocol".into()));
    let resetting = serve(|mut stream| {
        let _ = stream.read(&mut [0; 1024]);
        reset(stream);
    });
    assert_eq!(failure(&format!("http://{resetting}")), (1, "reset".into()));
    assert_eq!(failure(&format!("socks5://{resetting}")), (1, "reset".into()));
}

#[test]
fn hop_credentials_are_sent_checked_and_never_logged() {
    let folder = Folder::new();
    // The bcrypt hash of the password "baton" at cost 4, created with crypt(3).
    let users = folder.write("users", "runner:$2b$04$viMzP/EMi/LpemU8Fzw1qeBk.G4z/ZJbDd71mBZVhESZ9/hS5tBz2\n");
    let far = Relay::listen(&[&format!("auto://127.0.0.1:0?users={}", users.display())]);
    for scheme in ["socks5", "http"] {
        let relay = relay_with_hop(&format!("{scheme}://runner:baton@{}", far.address()));
        assert_greeting(socks5(relay.address(), greeter("hello")).unwrap());

        let mut relay = relay_with_hop(&format!("{scheme}://runner:stick@{}", far.address()));
        assert_eq!(socks5(relay.address(), greeter("hello")).map(|_| ()), Err(2));
        let closed = relay.closed();
        assert_eq!(closed["end"], "denied_by_hop");
        assert!(!closed.to_string().contains("stick"), "{closed}");
        assert!(!relay.ask("/metrics").contains("stick"));
    }
}

#[test]
fn silent_hop_fails_at_the_connect_deadline() {
    let folder = Folder::new();
    let (_silent, address) = server();
    let text = format!(
        "version = 1\nforward = [\"socks5://{address}\"]\n[timeouts]\nconnect = \"300ms\"\n\
         [[listener]]\nbind = \"127.0.0.1:0\"\n"
    );
    let file = folder.write("ekiden.toml", text);
    let mut relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    assert_eq!(socks5(relay.address(), greeter("hello")).map(|_| ()), Err(6));
    assert_eq!(relay.closed()["end"], "timed_out");
}

#[test]
fn relay_with_itself_as_hop_does_not_start() {
    let own = unused_address();
    let (listener, hop) = (format!("auto://{own}"), format!("socks5://{own}"));
    let output = ekiden().args(["run", "--admin", "off", "-L", &listener, "-F", &hop]).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains(&format!("{own} is a listener of this relay, and sessions would loop")), "{message}");
}

/// Returns the response of a name server to a query (RFC 1035, 4): names with `greeter` have an IPv4 address and no
/// IPv6 address, names with `broken` fail with SERVFAIL, and other names do not exist.
fn name_answer(query: &[u8]) -> Vec<u8> {
    let question_end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let question = &query[12..question_end];
    let asks_ipv4 = question[question.len() - 3] == 1;
    let name = String::from_utf8_lossy(question).to_ascii_lowercase();
    let (code, answers) = match (name.contains("greeter"), name.contains("broken")) {
        (true, _) => (0, u8::from(asks_ipv4)),
        (_, true) => (2, 0),
        _ => (3, 0),
    };
    let mut answer = vec![query[0], query[1], 0x81, 0x80 | code, 0, 1, 0, answers, 0, 0, 0, 0];
    answer.extend(question);
    if answers == 1 {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    answer
}

#[test]
fn configured_name_servers_are_used_and_failures_distinguished() {
    let folder = Folder::new();
    let text = format!(
        "version = 1\n[dns]\nservers = [\"{}\"]\n[[listener]]\nbind = \"127.0.0.1:0\"\n",
        name_server(name_answer)
    );
    let file = folder.write("ekiden.toml", text);
    let mut relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    let target = greeter("hello");
    let request = |name: &str, port: u16| {
        let mut request = vec![5, 1, 0, 3, name.len() as u8];
        request.extend(name.as_bytes());
        request.extend(port.to_be_bytes());
        socks5_request(relay.address(), &request)
    };
    assert_greeting(request("greeter.test", target.port()).unwrap());
    assert_eq!(request("nosuch.test", 80).map(|_| ()), Err(4));
    assert_eq!(request("broken.test", 80).map(|_| ()), Err(4));
    let ends: Vec<_> = relay.all_closed(3, "end").iter().map(|closed| closed["end"].clone()).collect();
    assert_eq!(ends, ["finished", "name_not_found", "name_server_failed"]);
}

/// The request to the proxy contains the name of the target, or with `resolve = "here"` its address.
#[test]
fn route_setting_selects_the_resolving_relay() {
    let folder = Folder::new();
    let names = name_server(name_answer);
    let text = format!(
        "version = 1\n[dns]\nservers = [\"{names}\"]\n[[listener]]\nbind = \"127.0.0.1:0\"\nallow_private = true\n"
    );
    let file = folder.write("proxy.toml", &text);
    let mut proxy = Relay::run(&["-c", file.to_str().unwrap()], 1);
    let target = greeter("hello");
    for (resolve, host) in
        [("", "greeter.test"), ("resolve = \"here\"", "127.0.0.1"), ("resolve = \"exit\"", "greeter.test")]
    {
        let route = format!(
            "[[relay]]\nname = \"proxy\"\nurl = \"socks5://{}\"\n[[route]]\npath = \"proxy\"\n{resolve}\n",
            proxy.address()
        );
        let file = folder.write("ekiden.toml", format!("{text}{route}"));
        let relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
        let mut request = vec![5, 1, 0, 3, 12];
        request.extend(b"greeter.test");
        request.extend(target.port().to_be_bytes());
        assert_greeting(socks5_request(relay.address(), &request).unwrap());
        assert_eq!(proxy.closed()["target"], format!("{host}:{}", target.port()), "{resolve}");
    }
}
