//! Clients, servers and name servers of the tests.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{TEST_TIMEOUT, eventually};

/// Connects to `address`. Reads and writes of the connection fail after [`TEST_TIMEOUT`].
pub fn connect(address: SocketAddr) -> TcpStream {
    with_timeouts(TcpStream::connect(address).expect("an open listener"))
}

/// Like [`connect`], from a loopback address.
pub fn connect_from(source: impl Into<IpAddr>, address: SocketAddr) -> TcpStream {
    try_connect_from(source, address).expect("an open listener")
}

/// Like [`connect_from`].
///
/// # Errors
/// The error of the connection attempt.
pub fn try_connect_from(source: impl Into<IpAddr>, address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(source.into(), 0).into())?;
    socket.connect(&address.into())?;
    Ok(with_timeouts(socket.into()))
}

/// Listens on a loopback port that the kernel chooses.
pub fn server() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Stops listening: afterwards connections are refused, and the port is free. Closing the descriptor is not enough: a
/// child process started by another thread at this moment holds a copy of the descriptor until execve(2), and the
/// socket would keep listening.
pub fn close(listener: TcpListener) {
    socket2::SockRef::from(&listener).shutdown(Shutdown::Both).expect("an open listener");
}

/// Waits up to [`TEST_TIMEOUT`] for a connection, and returns it with timeouts.
pub fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(false).unwrap();
    // SO_RCVTIMEO also limits accept(2) (socket(7)).
    socket2::SockRef::from(listener).set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    with_timeouts(listener.accept().expect("a connection").0)
}

/// Makes a stream blocking, with timeouts of [`TEST_TIMEOUT`] for reads and writes.
pub fn with_timeouts(stream: TcpStream) -> TcpStream {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

/// Starts a server that handles each connection in its own thread, until the test process exits.
pub fn serve(handle: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let (listener, address) = server();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let handle = handle.clone();
            std::thread::spawn(move || handle(stream));
        }
    });
    address
}

/// Starts a server that sends all received bytes back.
pub fn echo_server() -> SocketAddr {
    greeter("")
}

/// Starts a server that sends `greeting` and then all received bytes back.
pub fn greeter(greeting: &'static str) -> SocketAddr {
    serve(move |mut stream| {
        let mut bytes = [0; 65_536];
        let mut sent = stream.write_all(greeting.as_bytes());
        while let (Ok(()), Ok(count @ 1..)) = (sent, stream.read(&mut bytes)) {
            sent = stream.write_all(&bytes[..count]);
        }
    })
}

/// Sends a message to an [`echo_server`], and checks that it comes back.
pub fn assert_echo(stream: &mut TcpStream) {
    stream.write_all(b"message").unwrap();
    assert_eq!(read_exactly(stream, 7), b"message");
}

/// Starts a name server that answers each query with `answer`, until the test process exits.
pub fn name_server(answer: impl Fn(&[u8]) -> Vec<u8> + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut bytes) {
            socket.send_to(&answer(&bytes[..length]), from).unwrap();
        }
    });
    address
}

/// Returns the responses (RFC 1035, 4) of a name server with these names and addresses: other names do not exist
/// (NXDOMAIN).
pub fn answer_from(known: &'static [(&'static str, &'static str)]) -> impl Fn(&[u8]) -> Vec<u8> {
    |query| {
        let mut labels = Vec::new();
        let mut at = 12;
        while query[at] != 0 {
            let end = at + 1 + usize::from(query[at]);
            labels.push(String::from_utf8_lossy(&query[at + 1..end]).to_ascii_lowercase());
            at = end;
        }
        let question = &query[12..at + 5];
        let asks_ipv4 = query[at + 2] == 1;
        let known = known.iter().find(|(name, _)| *name == labels.join("."));
        let address = known.map(|(_, address)| address.parse::<IpAddr>().unwrap());
        let address = address.filter(|ip| ip.is_ipv4() == asks_ipv4);
        let code = if known.is_some() { 0 } else { 3 };
        let mut answer = vec![query[0], query[1], 0x81, 0x80 | code, 0, 1, 0, u8::from(address.is_some()), 0, 0, 0, 0];
        answer.extend(question);
        let record =
            |kind: u8, octets: &[u8]| [&[0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60, 0, octets.len() as u8], octets].concat();
        answer.extend(match address {
            Some(IpAddr::V4(v4)) => record(1, &v4.octets()),
            Some(IpAddr::V6(v6)) => record(28, &v6.octets()),
            None => Vec::new(),
        });
        answer
    }
}

/// Returns a port without a listener. The port is below the ephemeral port range of the kernel (ip(7),
/// `ip_local_port_range`), so no connection and no listener on port 0 of another test gets it.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    loop {
        let number = std::process::id().wrapping_mul(89).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + number % COUNT).expect("below 65536");
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            close(listener);
            return port;
        }
    }
}

/// A loopback address without a listener: connections to it are refused.
pub fn unused_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

pub fn read_exactly(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).expect("as many bytes as expected");
    bytes
}

/// How a stream ended for its reader: by FIN or by a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Clean,
    Reset,
}

/// Reads all remaining bytes, and returns them with the end of the stream.
pub fn read_remaining(stream: &mut TcpStream) -> (Vec<u8>, Ending) {
    let (mut received, mut bytes) = (Vec::new(), vec![0; 65_536]);
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return (received, Ending::Clean),
            Ok(count) => received.extend(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return (received, Ending::Reset),
            // After a suspend of the machine a read with a timeout is interrupted (signal(7)).
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error} after {} bytes: {:?}", received.len(), String::from_utf8_lossy(&received)),
        }
    }
}

pub fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the stream ends well");
    bytes
}

/// Reads an HTTP head byte by byte, so that the bytes behind the head remain in the socket.
pub fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(read_exactly(stream, 1));
        assert!(head.len() < 1 << 20, "a head without end");
    }
    String::from_utf8(head).expect("an ASCII head")
}

/// Waits for a byte or the end of the connection. Returns whether the peer closed the connection, by FIN or a reset,
/// before it sent a byte.
pub fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// Returns whether the peer resets the connection without sending a byte.
pub fn is_reset(stream: &mut TcpStream) -> bool {
    read_remaining(stream) == (Vec::new(), Ending::Reset)
}

/// An address as in /proc/net/tcp (proc_pid_net(5)): in network byte order, printed as a native integer, and the port.
fn tcp_table_address(address: SocketAddr) -> String {
    let SocketAddr::V4(address) = address else { panic!("IPv4 only") };
    format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
}

/// Waits until the other end has read all bytes of an IPv4 connection within this host.
pub fn wait_read(stream: &TcpStream) {
    let [local, remote] = [stream.peer_addr(), stream.local_addr()].map(|address| tcp_table_address(address.unwrap()));
    eventually("the other end to read all bytes", || {
        // Acknowledged bytes are in the receive queue of the other end, so an empty queue then shows that they are read.
        if ekiden_sys::outq::unacknowledged(stream.as_fd()).unwrap() > 0 {
            return None;
        }
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row = rows.find(|row| row[1] == local && row[2] == remote)?;
        row[4].ends_with(":00000000").then_some(())
    });
}

/// Closes a socket with a reset.
pub fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Opens a SOCKS5 tunnel to `target` through a relay. Returns the reply code if the relay refuses.
pub fn socks5(relay: SocketAddr, target: SocketAddr) -> Result<TcpStream, u8> {
    socks5_request(relay, &socks5_connect(target))
}

/// Like [`socks5`], from a loopback address.
pub fn socks5_from(source: impl Into<IpAddr>, relay: SocketAddr, target: SocketAddr) -> Result<TcpStream, u8> {
    request_by_socks5(connect_from(source, relay), &socks5_connect(target))
}

/// Sends a SOCKS5 request without authentication, and reads the reply. Returns the reply code if the relay refuses.
pub fn socks5_request(relay: SocketAddr, request: &[u8]) -> Result<TcpStream, u8> {
    request_by_socks5(connect(relay), request)
}

/// Returns a CONNECT request (RFC 1928, 4) for an IPv4 address.
fn socks5_connect(target: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(target) = target else { panic!("IPv4 only") };
    [&[5, 1, 0, 1][..], &target.ip().octets(), &target.port().to_be_bytes()].concat()
}

fn request_by_socks5(mut stream: TcpStream, request: &[u8]) -> Result<TcpStream, u8> {
    stream.write_all(&[5, 1, 0]).unwrap();
    assert_eq!(read_exactly(&mut stream, 2), [5, 0]);
    stream.write_all(request).unwrap();
    let reply = read_exactly(&mut stream, 10);
    if reply[1] == 0 { Ok(stream) } else { Err(reply[1]) }
}

/// Number of established connections to `address`, of all processes in this network namespace.
pub fn connections_to(address: SocketAddr) -> usize {
    let remote = tcp_table_address(address);
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    // The third column is the remote address, the fourth the state: 01 for ESTABLISHED.
    let is_established = |line: &&str| line.split_whitespace().skip(2).take(2).eq([remote.as_str(), "01"]);
    table.lines().filter(is_established).count()
}
