//! Operations and checks of tests on sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::JoinHandle;

use ekiden_proto::wire::section::Hello;

use crate::harness::*;

/// Sends a message from each end, and checks that it arrives at the other.
pub fn exchange_messages(client: &mut TcpStream, server: &mut TcpStream) {
    client.write_all(b"question").unwrap();
    assert_eq!(read_exactly(server, 8), b"question");
    server.write_all(b"answer").unwrap();
    assert_eq!(read_exactly(client, 6), b"answer");
}

/// Checks that after `first` has half-closed the connection, an answer of 200,000 bytes from `second` arrives in full.
pub fn exchange_half_closed(first: &mut TcpStream, second: &mut TcpStream) {
    first.write_all(b"question").unwrap();
    first.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(second), b"question");
    let answer = send(second, pattern(200_000));
    assert!(read_all(first) == pattern(200_000));
    join(answer);
}

/// Sends `bytes` and FIN, in a thread of its own.
pub fn send(stream: &TcpStream, bytes: Vec<u8>) -> JoinHandle<()> {
    let mut stream = stream.try_clone().unwrap();
    std::thread::spawn(move || {
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    })
}

/// Sends blocks of 64 KiB until an error, in a thread that returns the kind of the error.
pub fn flood(stream: &TcpStream) -> JoinHandle<ErrorKind> {
    let mut stream = stream.try_clone().unwrap();
    std::thread::spawn(move || {
        let block = pattern(65_536);
        loop {
            if let Err(error) = stream.write_all(&block) {
                return error.kind();
            }
        }
    })
}

/// Whether a sending socket was reset. The kernel reports a reset to only one call on the socket: here a read, or a
/// write of `writer`.
pub fn is_reset_while_flooding(stream: &mut TcpStream, writer: JoinHandle<ErrorKind>) -> bool {
    let ending = read_remaining(stream).1;
    join(writer) == ErrorKind::ConnectionReset || ending == Ending::Reset
}

/// Transfers `up` and `down` bytes concurrently, each followed by FIN, and checks that they arrive unchanged.
pub fn transfer_both_ways(mut client: TcpStream, mut server: TcpStream, up: usize, down: usize) {
    let (up, down) = (pattern(up), pattern(down));
    let writers = [send(&client, up.clone()), send(&server, down.clone())];
    let reader = std::thread::spawn(move || read_all(&mut server));
    assert!(read_all(&mut client) == down, "bytes to the client were changed");
    assert!(join(reader) == up, "bytes to the server were changed");
    writers.into_iter().for_each(join);
}

/// Reads the hello of a section (see `interceptor`); `None` if the connection ends before it.
pub fn try_read_hello(section: &mut TcpStream) -> Option<Vec<u8>> {
    let mut hello = vec![0; Hello::HEADER_LENGTH];
    section.read_exact(&mut hello).ok()?;
    let length = u16::from_be_bytes([hello[8], hello[9]]);
    hello.extend(read_exactly(section, length.into()));
    Some(hello)
}

/// A SOCKS5 tunnel to a name, or the reply code that refused it.
pub fn socks5_by_name(relay: SocketAddr, name: &str, port: u16) -> Result<TcpStream, u8> {
    let length = u8::try_from(name.len()).expect("a short name");
    socks5_request(relay, &[&[5, 1, 0, 3, length], name.as_bytes(), &port.to_be_bytes()].concat())
}
