//! Urgent data (MSG_OOB, RFC 6093) through the relay: every byte arrives in order, and no byte waits for a later byte.
//!
//! Regression: a read stops before a byte that is marked as urgent, and splice(2) returns EAGAIN or 0 there. The relay
//! treated EAGAIN as an empty socket and 0 as the end of the stream: bytes behind the mark were delayed until further
//! bytes arrived, or were never forwarded.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::thread::JoinHandle;

use ekiden_sys::outq::unacknowledged;
use harness::*;
use socket2::SockRef;

/// Number of bytes after which a direction is certainly spliced.
const SPLICED: usize = 300_000;

/// Sends the bytes; the bytes at the positions `marks` are urgent.
fn send_urgent(stream: &mut TcpStream, bytes: &[u8], marks: &[usize]) {
    let mut sent = 0;
    for mark in marks {
        stream.write_all(&bytes[sent..*mark]).unwrap();
        assert_eq!(SockRef::from(&*stream).send_out_of_band(&bytes[*mark..=*mark]).unwrap(), 1);
        sent = mark + 1;
    }
    stream.write_all(&bytes[sent..]).unwrap();
}

/// Starts a thread that calls [`send_urgent`] and then ends the stream.
fn send_urgent_and_end(stream: &TcpStream, bytes: Vec<u8>, marks: Vec<usize>) -> JoinHandle<()> {
    let mut stream = stream.try_clone().unwrap();
    std::thread::spawn(move || {
        send_urgent(&mut stream, &bytes, &marks);
        stream.shutdown(Shutdown::Write).unwrap();
    })
}

/// Sends while the relay is stopped, so that all bytes are in its receive buffer when the relay continues.
fn send_while_stopped(relay: &Relay, sender: &TcpStream, send: impl FnOnce()) {
    relay.stop();
    send();
    eventually("all bytes in the receive buffer", || (unacknowledged(sender.as_fd()).unwrap() == 0).then_some(()));
    relay.signal("CONT");
}

/// Calls `check` with the relay, a sender and a receiver, for both directions, each before and after the switch to
/// splice(2).
fn for_each_direction(check: impl Fn(&Relay, &mut TcpStream, &mut TcpStream)) {
    for before in [0, SPLICED] {
        for up in [true, false] {
            let (mut relay, client, server) = relay_with_connection();
            let (mut sender, mut receiver) = if up { (client, server) } else { (server, client) };
            let first = pattern(before);
            let (all, mut writes) = (first.clone(), sender.try_clone().unwrap());
            let writer = std::thread::spawn(move || writes.write_all(&all).unwrap());
            assert!(read_exactly(&mut receiver, before) == first);
            join(writer);
            println!("up: {up}, {before} bytes before");
            check(&relay, &mut sender, &mut receiver);
            drop((sender, receiver));
            let closed = relay.closed();
            let spliced = closed["bytes_spliced"].as_u64().unwrap();
            assert_eq!(closed["end"], "finished", "{closed}");
            assert!(before == 0 || spliced > 0, "{closed}");
        }
    }
}

#[test]
fn bytes_after_an_urgent_byte_arrive_without_further_bytes() {
    for_each_direction(|relay, sender, receiver| {
        for marks in [&[0][..], &[100], &[999], &[0, 1, 500]] {
            let bytes = pattern(1000);
            send_while_stopped(relay, &sender.try_clone().unwrap(), || send_urgent(sender, &bytes, marks));
            assert!(read_exactly(receiver, bytes.len()) == bytes, "{marks:?}");
        }
        sender.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(receiver), b"");
        receiver.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(sender), b"");
    });
}

/// splice(2) returns 0 at the mark if FIN has already arrived.
#[test]
fn bytes_between_an_urgent_byte_and_fin_arrive() {
    for_each_direction(|relay, sender, receiver| {
        let bytes = pattern(1000);
        send_while_stopped(relay, &sender.try_clone().unwrap(), || {
            send_urgent(sender, &bytes, &[500]);
            sender.shutdown(Shutdown::Write).unwrap();
        });
        assert!(read_all(receiver) == bytes);
        receiver.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(sender), b"");
    });
}

#[test]
fn megabytes_after_an_urgent_byte_arrive() {
    for_each_direction(|_, sender, receiver| {
        let bytes = pattern(2_600_000);
        let writer = send_urgent_and_end(sender, bytes.clone(), vec![10, 70_000, 1_000_000, 2_599_999]);
        assert!(read_all(receiver) == bytes);
        join(writer);
        receiver.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(sender), b"");
    });
}

#[test]
fn bursts_with_urgent_bytes_in_both_directions_lose_nothing() {
    let (mut relay, client, server) = relay_with_connection();
    let marks: Vec<usize> = (0..300).map(|burst| burst * 1000 + burst * 7 % 1000).collect();
    let bytes = pattern(300 * 1000);
    let writers = [&client, &server].map(|stream| send_urgent_and_end(stream, bytes.clone(), marks.clone()));
    let readers = [client, server].map(|mut stream| std::thread::spawn(move || read_all(&mut stream)));
    readers.into_iter().for_each(|reader| assert!(join(reader) == bytes));
    writers.into_iter().for_each(join);
    assert_eq!(relay.closed()["end"], "finished");
}

/// The kernel refuses `SO_OOBINLINE` on an MPTCP listener, and the accepted socket of a plain TCP client is a plain TCP
/// socket.
#[test]
fn multipath_listener_loses_no_urgent_byte() {
    let (listener, address) = server();
    let folder = Folder::new();
    let text = format!(
        "version = 1\n[profile.multipath]\nmptcp = true\n[[listener]]\nbind = \"127.0.0.1:0\"\nkind = \"tcp\"\n\
         target = \"{address}\"\nprofile = \"multipath\"\n"
    );
    let relay = Relay::run(&["-c", folder.write("ekiden.toml", text).to_str().unwrap()], 1);
    let mut client = relay.connect();
    let mut server = accept(&listener);
    let bytes = pattern(1000);
    send_while_stopped(&relay, &client.try_clone().unwrap(), || send_urgent(&mut client, &bytes, &[500]));
    assert!(read_exactly(&mut server, 1000) == bytes);
}

/// Starts a server that reads requests with the body `expected`, and sends `answer` with an urgent byte at `mark`.
fn answering(expected: Vec<u8>, answer: Vec<u8>, mark: usize) -> SocketAddr {
    serve(move |mut stream| {
        while let Ok(1..) = stream.peek(&mut [0]) {
            read_head(&mut stream);
            assert!(read_exactly(&mut stream, expected.len()) == expected);
            send_urgent(&mut stream, &answer, &[mark]);
        }
    })
}

/// The urgent byte is in the head or in the body. Two requests use the same connections.
#[test]
fn http_requests_and_answers_keep_their_urgent_bytes() {
    let relay = Relay::listen(&["http://127.0.0.1:0"]);
    let (body, chunk) = (pattern(200_000), pattern(200_000));
    let chunked = [&b"30d40\r\n"[..], &chunk, b"\r\n0\r\n\r\n"].concat();
    for (framing, body) in [("Content-Length: 200000", body), ("Transfer-Encoding: chunked", chunked)] {
        let head = format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n");
        for mark in [20, head.len() + 3, head.len() + 7, head.len() + 100_000] {
            let address = answering(body.clone(), [head.as_bytes(), &body].concat(), mark);
            let mut client = relay.connect();
            for _ in 0..2 {
                let asked = format!("POST http://{address}/ HTTP/1.1\r\nHost: {address}\r\n{framing}\r\n\r\n");
                let mark = asked.len() + mark - head.len().min(mark);
                let (request, mut writes) = ([asked.as_bytes(), &body].concat(), client.try_clone().unwrap());
                let writer = std::thread::spawn(move || send_urgent(&mut writes, &request, &[mark]));
                let answered = read_head(&mut client);
                assert!(answered.starts_with("HTTP/1.1 200 OK\r\n"), "{answered}");
                assert!(read_exactly(&mut client, body.len()) == body, "{framing}, mark at {mark}");
                join(writer);
            }
        }
    }
}

/// Each reply of the hop contains an urgent byte, and no further bytes follow before the next request.
#[test]
fn hop_answer_with_urgent_bytes_is_parsed() {
    let socks = serve(|mut stream| {
        read_exactly(&mut stream, 3);
        send_urgent(&mut stream, &[5, 0], &[1]);
        read_exactly(&mut stream, 10);
        send_urgent(&mut stream, &[5, 0, 0, 1, 127, 0, 0, 1, 0, 80], &[6]);
        let _ = stream.write_all(b"hello");
    });
    let http = serve(|mut stream| {
        read_head(&mut stream);
        let answer = b"HTTP/1.1 200 OK\r\n\r\nhello";
        send_urgent(&mut stream, answer, &[10]);
    });
    for hop in [format!("socks5://{socks}"), format!("http://{http}")] {
        let relay = Relay::run(&["-L", "auto://127.0.0.1:0", "-F", &hop], 1);
        for _ in 0..20 {
            let mut client = socks5(relay.address(), unused_address()).unwrap();
            assert_eq!(read_exactly(&mut client, 5), b"hello", "{hop}");
        }
    }
}

#[test]
fn client_handshake_with_urgent_bytes_is_parsed() {
    let relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let target = serve(|mut stream| stream.write_all(b"hello").unwrap());
    let SocketAddr::V4(to) = target else { panic!("IPv4 only") };
    let request = [&[5, 1, 0, 1][..], &to.ip().octets(), &to.port().to_be_bytes()].concat();
    let mut client = relay.connect();
    send_while_stopped(&relay, &client.try_clone().unwrap(), || send_urgent(&mut client, &[5, 1, 0], &[0, 2]));
    assert_eq!(read_exactly(&mut client, 2), [5, 0]);
    send_while_stopped(&relay, &client.try_clone().unwrap(), || send_urgent(&mut client, &request, &[5]));
    assert_eq!(read_exactly(&mut client, 10)[..2], [5, 0]);
    assert_eq!(read_exactly(&mut client, 5), b"hello");
}
