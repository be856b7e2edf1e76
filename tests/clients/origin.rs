//! A small HTTP server whose response has the head of the request as received, and the length and a checksum of the
//! body.
//!
//! The response for `/chunked` is chunked, for `/broken-chunks` lacks the last chunk, and for `/close` ends with the
//! connection. `/no-http` and `/wants-proxy-password` get invalid responses. An upgrade to the protocol `echo` is
//! accepted, and every byte is sent back. The response for every other path has a Content-Length.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::harness::{pattern, read_exactly, read_head, serve};

/// The first bytes of the server after an upgrade, in one write with the response 101.
pub const GREETING: &[u8] = b"hello from the other protocol";

/// The body of the responses to `/chunked` and `/close`.
pub fn long_answer() -> Vec<u8> {
    pattern(300_000)
}

/// Starts a server on a free port. Returns its address.
pub fn start() -> SocketAddr {
    serve(|mut stream| {
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout that is not zero");
        while stream.peek(&mut [0]).is_ok_and(|count| count > 0) {
            if answer(&mut stream).is_none() {
                return;
            }
        }
    })
}

/// Returns a checksum that depends on the order of the bytes (FNV-1a).
pub fn checksum(bytes: &[u8]) -> String {
    let sum = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{sum:016x}")
}

/// Answers one request; `None` if the connection must not be reused.
fn answer(stream: &mut TcpStream) -> Option<()> {
    let head = read_head(stream);
    let value = |name: &str| {
        let field = head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
        field.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    if value("upgrade").as_deref() == Some("echo") {
        echo(stream);
        return None;
    }
    if value("expect").is_some() {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    let body = match (value("content-length"), value("transfer-encoding")) {
        (Some(length), _) => read_exactly(stream, length.parse().expect("a length")),
        (None, Some(_)) => read_chunks(stream),
        (None, None) => Vec::new(),
    };
    match head.split(' ').nth(1) {
        Some("/chunked") => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").ok()?;
            for chunk in long_answer().chunks(70_001) {
                write!(stream, "{:x};name=value\r\n", chunk.len()).ok()?;
                stream.write_all(chunk).and_then(|()| stream.write_all(b"\r\n")).ok()?;
            }
            stream.write_all(b"0\r\nX-Trailer: yes\r\n\r\n").ok()
        }
        Some("/broken-chunks") => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").ok()?;
            None
        }
        Some("/no-http") => {
            stream.write_all(b"SSH-2.0-something\r\n").ok()?;
            None
        }
        Some("/wants-proxy-password") => {
            let head = "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n";
            write!(stream, "{head}Content-Length: 0\r\n\r\n").ok()
        }
        Some("/close") => {
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").and_then(|()| stream.write_all(&long_answer())).ok()?;
            None
        }
        _ => {
            let report = format!("{}\nbody: {} {}\n", head.trim_end().replace('\r', ""), body.len(), checksum(&body));
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{report}", report.len()).ok()
        }
    }
}

fn read_chunks(stream: &mut TcpStream) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.extend(read_exactly(stream, 1));
        }
        let line = String::from_utf8(line).expect("an ASCII chunk head");
        let size = usize::from_str_radix(line.trim_end().split(';').next().unwrap_or(""), 16).expect("a size");
        body.extend(read_exactly(stream, size));
        assert_eq!(read_exactly(stream, 2), b"\r\n");
        if size == 0 {
            return body;
        }
    }
}

fn echo(stream: &mut TcpStream) {
    let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(&[head, GREETING].concat()).expect("the client listens");
    let mut bytes = vec![0; 65_536];
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        stream.write_all(&bytes[..count]).expect("the client listens");
    }
    let _ = stream.shutdown(Shutdown::Write);
}
