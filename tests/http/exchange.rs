//! A relay with a server of the test, and helpers that send and read HTTP messages.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};

use serde_json::Value;

use crate::harness::*;

/// A response that keeps the connection open.
pub const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The end of a line.
pub const CRLF: &str = "\r\n";

/// A relay and a server. The tests accept the server's connections themselves, so the number of connections is known.
pub struct Fixture {
    pub relay: Relay,
    pub listener: TcpListener,
    pub server: SocketAddr,
    _folder: Folder,
}

impl Fixture {
    pub fn new() -> Self {
        Self::with("")
    }

    /// `settings` are lines of the configuration file: top-level keys first, then tables.
    pub fn with(settings: &str) -> Self {
        Self::with_listener(settings, "kind = \"auto\"\n")
    }

    /// `listener_keys` has further lines of the `[[listener]]`.
    pub fn with_listener(settings: &str, listener_keys: &str) -> Self {
        let folder = Folder::new();
        let text = format!("version = 1\n{settings}\n[[listener]]\nbind = \"127.0.0.1:0\"\n{listener_keys}");
        let listeners = text.matches("[[listener]]").count();
        let file = folder.write("ekiden.toml", text);
        let (listener, server) = server();
        let relay = Relay::run(&["-c", file.to_str().unwrap()], listeners);
        Self { relay, listener, server, _folder: folder }
    }

    pub fn client(&self) -> TcpStream {
        self.relay.connect()
    }

    pub fn accept(&self) -> TcpStream {
        accept(&self.listener)
    }

    /// Returns the head of a request without a body, to the server of this fixture.
    pub fn get(&self, path: &str) -> String {
        get(self.server, path)
    }

    /// Returns the head of a POST with these additional fields, each of which ends with CR LF.
    pub fn post(&self, fields: &str) -> String {
        let server = self.server;
        format!("POST http://{server}/form HTTP/1.1\r\nHost: {server}\r\n{fields}\r\n")
    }

    /// Sends a request, and answers it with [`OK`] at the server. Returns the head of the request that the server
    /// received.
    pub fn exchange(&self, client: &mut TcpStream, server: &mut TcpStream, path: &str) -> Head {
        send(client, self.get(path));
        let request = Head::read(server);
        assert_eq!(request.line(), format!("GET {path} HTTP/1.1"));
        send(server, OK);
        expect_ok(client);
        request
    }

    /// Performs one exchange. Returns the connections of the client and the server, which both stay open.
    pub fn keep_alive_pair(&self) -> (TcpStream, TcpStream) {
        let mut client = self.client();
        send(&mut client, self.get("/first"));
        let mut server = self.accept();
        Head::read(&mut server);
        send(&mut server, OK);
        expect_ok(&mut client);
        (client, server)
    }

    /// Waits for the event of the next request.
    pub fn request(&mut self) -> Value {
        self.relay.next(|event| event["event"] == "request")
    }

    /// Returns the number of lookups of kept connections with this result: `hit`, `miss` or `stale`.
    pub fn lookups(&self, result: &str) -> usize {
        let series = format!("ekiden_kept_connections_total{{result=\"{result}\"}}");
        self.relay.metric(&series).map_or(0, |count| usize::try_from(count).unwrap())
    }

    /// Asserts that no connection of the relay to the server waits to be accepted.
    pub fn assert_not_contacted(&self, why: &str) {
        assert!(!is_waiting(&self.listener), "{why:?} reached the server");
    }
}

/// Returns the head of a request without a body, to any server.
pub fn get(server: SocketAddr, path: &str) -> String {
    format!("GET http://{server}{path} HTTP/1.1\r\nHost: {server}\r\n\r\n")
}

/// Returns whether a connection waits to be accepted. If so, the connection is accepted and dropped.
pub fn is_waiting(listener: &TcpListener) -> bool {
    listener.set_nonblocking(true).unwrap();
    listener.accept().is_ok()
}

pub fn send(stream: &mut TcpStream, bytes: impl AsRef<[u8]>) {
    stream.write_all(bytes.as_ref()).unwrap();
}

/// The head of a request or a response.
pub struct Head(pub String);

impl Head {
    pub fn read(stream: &mut TcpStream) -> Self {
        Self(read_head(stream))
    }

    pub fn line(&self) -> &str {
        self.0.lines().next().unwrap()
    }

    pub fn status(&self) -> u16 {
        self.line().split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub fn all(&self, name: &str) -> Vec<&str> {
        let fields = self.0.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }
}

/// Reads a response with its body, which ends by length, by chunks or with the connection.
pub fn read_response(stream: &mut TcpStream) -> (Head, Vec<u8>) {
    let head = Head::read(stream);
    let body = match (head.get("Content-Length"), head.get("Transfer-Encoding")) {
        (Some(length), None) => read_exactly(stream, length.parse().unwrap()),
        (None, Some("chunked")) => chunks(stream).0,
        (None, None) => read_all(stream),
        framing => panic!("{framing:?}"),
    };
    (head, body)
}

/// Reads a response, and asserts that it has the status and the body of [`OK`].
pub fn expect_ok(client: &mut TcpStream) {
    let (head, body) = read_response(client);
    assert_eq!((head.status(), body.as_slice()), (200, b"ok".as_slice()), "{}", head.0);
}

/// Reads a chunked body. Returns its data, and its trailers with the final empty line.
pub fn chunks(stream: &mut TcpStream) -> (Vec<u8>, String) {
    let mut data = Vec::new();
    loop {
        let line = read_line(stream);
        let size = usize::from_str_radix(&line, 16).unwrap_or_else(|_| panic!("no chunk size: {line:?}"));
        if size == 0 {
            break;
        }
        data.extend(read_exactly(stream, size));
        assert_eq!(read_line(stream), "");
    }
    let mut trailers = String::new();
    loop {
        let line = read_line(stream);
        trailers = trailers + &line + CRLF;
        if line.is_empty() {
            return (data, trailers);
        }
    }
}

fn read_line(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(CRLF.as_bytes()) {
        line.extend(read_exactly(stream, 1));
    }
    line.truncate(line.len() - 2);
    String::from_utf8(line).unwrap()
}

/// Waits until the peer has closed, by FIN or reset, and asserts that no further byte arrives.
pub fn assert_closed(stream: &mut TcpStream) {
    let (received, _) = read_remaining(stream);
    assert!(received.is_empty(), "{:?}", String::from_utf8_lossy(&received));
}

/// Reads an error response with a page, and asserts that the relay closes the connection after it.
pub fn expect_refusal(client: &mut TcpStream, status: u16, why: &str) -> (Head, String) {
    let head = Head::read(client);
    let page = String::from_utf8(read_all(client)).unwrap();
    assert_eq!(head.status(), status, "{why:?}: {}", head.0);
    assert_eq!(head.get("Connection"), Some("close"), "{why:?}: {}", head.0);
    assert_eq!(head.get("Content-Length"), Some(page.len().to_string().as_str()), "{why:?}: {page}");
    (head, page)
}
