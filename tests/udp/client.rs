//! A SOCKS5 client with a UDP association, and echo servers.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use serde_json::Value;

use crate::harness::*;

/// A server that answers each datagram with `re:` and the datagram, until the end of the test process.
pub fn udp_echo_server(ip: &str) -> SocketAddr {
    let socket = UdpSocket::bind((ip, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 2048];
        while let Ok((count, from)) = socket.recv_from(&mut bytes) {
            let _ = socket.send_to(&[b"re:", &bytes[..count]].concat(), from);
        }
    });
    address
}

/// A SOCKS5 client with a UDP association.
pub struct Client {
    pub tcp: TcpStream,
    pub udp: UdpSocket,
    pub relay: SocketAddr,
}

/// Sends a UDP ASSOCIATE request with an address. Returns the connection, the code of the reply, and the address in it.
pub fn request_association(relay: SocketAddr, address: &[u8]) -> (TcpStream, u8, Option<SocketAddr>) {
    let mut tcp = connect(relay);
    tcp.write_all(&[&[5, 1, 0, 5, 3, 0], address].concat()).unwrap();
    assert_eq!(read_exactly(&mut tcp, 2), [5, 0]);
    let head = read_exactly(&mut tcp, 4);
    let ip: IpAddr = match head[3] {
        1 => <[u8; 4]>::try_from(read_exactly(&mut tcp, 4)).unwrap().into(),
        _ => <[u8; 16]>::try_from(read_exactly(&mut tcp, 16)).unwrap().into(),
    };
    let port = read_exactly(&mut tcp, 2);
    (tcp, head[1], Some(SocketAddr::new(ip, u16::from_be_bytes([port[0], port[1]]))).filter(|_| head[1] == 0))
}

pub const ANY_ADDRESS: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

impl Client {
    pub fn new(relay: SocketAddr) -> Self {
        let (tcp, reply, bound) = request_association(relay, &ANY_ADDRESS);
        assert_eq!(reply, 0);
        let bound = bound.unwrap();
        assert_eq!(bound.ip(), relay.ip(), "the address that the client connected to");
        Self { tcp, udp: socket(relay.ip()), relay: bound }
    }

    pub fn send(&self, header: &[u8], payload: &[u8]) {
        self.udp.send_to(&[header, payload].concat(), self.relay).unwrap();
    }

    /// Receives one datagram. Returns its header, the first `header` bytes, and its payload.
    pub fn receive(&self, header: usize) -> (Vec<u8>, Vec<u8>) {
        let mut bytes = vec![0; 2048];
        let (count, from) = self.udp.recv_from(&mut bytes).expect("a datagram from the relay");
        assert_eq!(from, self.relay);
        (bytes[..header].to_vec(), bytes[header..count].to_vec())
    }

    /// Sends `payload` to an echo server and expects the answer. The relay serves the datagrams of a client in order,
    /// so earlier datagrams without an answer were dropped.
    pub fn assert_echo(&self, server: SocketAddr, payload: &[u8]) {
        let header = header(server);
        self.send(&header, payload);
        assert_eq!(self.receive(header.len()), (header, [b"re:", payload].concat()));
    }

    /// Sends datagrams until one is answered: datagrams are lost while the relay opens another lane.
    pub fn wait_echo(&self, server: SocketAddr) {
        self.udp.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        eventually("an echoed datagram", || {
            self.send(&header(server), b"again");
            self.udp.recv_from(&mut [0; 64]).ok()
        });
    }
}

pub fn socket(ip: IpAddr) -> UdpSocket {
    let udp = UdpSocket::bind((ip, 0)).unwrap();
    udp.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    udp
}

pub fn header(target: SocketAddr) -> Vec<u8> {
    let (kind, ip) = match target.ip() {
        IpAddr::V4(ip) => (1, ip.octets().to_vec()),
        IpAddr::V6(ip) => (4, ip.octets().to_vec()),
    };
    [&[0, 0, 0, kind], &*ip, &target.port().to_be_bytes()].concat()
}

pub fn name_header(name: &str, port: u16) -> Vec<u8> {
    [&[0, 0, 0, 3, u8::try_from(name.len()).unwrap()], name.as_bytes(), &port.to_be_bytes()].concat()
}

pub fn assert_closed(closed: &Value, end: &str, up: u64, down: u64, dropped: u64) {
    assert_closed_by("udp", closed, end, up, down, dropped);
}

pub fn assert_closed_by(path: &str, closed: &Value, end: &str, up: u64, down: u64, dropped: u64) {
    assert_eq!((&closed["end"], &closed["path"]), (&end.into(), &path.into()), "{closed}");
    assert_eq!((closed["bytes_up"].as_u64(), closed["bytes_down"].as_u64()), (Some(up), Some(down)), "{closed}");
    let detail = (dropped > 0).then(|| format!("{dropped} datagrams dropped"));
    assert_eq!(closed["detail"].as_str(), detail.as_deref(), "{closed}");
}

/// Number of datagrams that the relay has dropped at `listener` for `reason`.
pub fn dropped(relay: &Relay, listener: &str, reason: &str) -> u64 {
    let series = format!("ekiden_udp_datagrams_dropped_total{{listener=\"{listener}\",reason=\"{reason}\"}}");
    relay.metric(&series).expect(&series)
}
