//! TCP sockets of the tests, each in the namespace of a host.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::harness::TEST_TIMEOUT;
use crate::network::Host;

pub const CLIENT: [&str; 2] = ["10.1.0.2", "fd01::2"];
pub const SERVER: [&str; 2] = ["10.3.0.2", "fd03::2"];

/// The listener of most tests.
pub const TPROXY: &str = "tproxy://[::]:7001?interfaces=lan0";

/// The mark of the relay's own packets.
pub const RELAY_MARK: u32 = 0xe106_0000;

/// Returns a socket address. Both ends of a connection have the same address family.
pub fn address(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// Opens a listening socket on `host`. With a mark, the socket is transparent and its packets have this mark.
pub fn listen(host: &Host, at: SocketAddr, mark: Option<u32>) -> TcpListener {
    host.inside(|| {
        let socket = new_socket(at, mark);
        socket.set_reuse_address(true).unwrap();
        if at.is_ipv6() {
            socket.set_only_v6(false).unwrap();
        }
        socket.bind(&at.into()).unwrap();
        socket.listen(16).unwrap();
        socket.into()
    })
}

/// Connects from `from` on `host`, with a transparent socket if there is a mark. Fails after [`TEST_TIMEOUT`].
pub fn connect(host: &Host, from: SocketAddr, to: SocketAddr, mark: Option<u32>) -> std::io::Result<TcpStream> {
    host.inside(|| {
        let socket = new_socket(to, mark);
        socket.set_reuse_address(true)?;
        socket.bind(&from.into())?;
        socket.connect_timeout(&to.into(), TEST_TIMEOUT)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(TEST_TIMEOUT))?;
        stream.set_write_timeout(Some(TEST_TIMEOUT))?;
        Ok(stream)
    })
}

fn new_socket(address: SocketAddr, mark: Option<u32>) -> Socket {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    if let Some(mark) = mark {
        // The same option serves both families (ip(7), ipv6(7)).
        socket.set_ip_transparent_v4(true).unwrap();
        socket.set_mark(mark).unwrap();
    }
    socket
}

/// Sends bytes from `one` to `other` and back.
pub fn exchange(one: &mut TcpStream, other: &mut TcpStream) {
    let mut bytes = [0; 4];
    one.write_all(b"ping").unwrap();
    other.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    other.read_exact(&mut bytes).unwrap();
    other.write_all(b"pong").unwrap();
    one.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"pong");
}

/// Returns whether no connection waits to be accepted. A connection may still arrive later, so a test has to check more
/// than this.
pub fn is_idle_listener(listener: &TcpListener) -> bool {
    listener.set_nonblocking(true).unwrap();
    let is_idle = listener.accept().is_err();
    listener.set_nonblocking(false).unwrap();
    is_idle
}

/// Sends enough bytes to fill the windows between two hosts several times.
pub fn send_bulk(from: &mut TcpStream, to: &mut TcpStream) {
    const MANY: usize = 1_000_000;
    let mut received = vec![0; MANY];
    to.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    from.set_write_timeout(Some(TEST_TIMEOUT + Duration::from_secs(1))).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| from.write_all(&vec![7; MANY]).unwrap());
        to.read_exact(&mut received).unwrap();
    });
    assert!(received.iter().all(|byte| *byte == 7));
}
