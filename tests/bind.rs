//! SOCKS5 BIND (RFC 1928, 4 and 6): connections from a server to a client through the relay, as in active mode of FTP.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "harness/mod.rs"]
mod harness;
#[path = "clients/programs.rs"]
mod programs;
#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "sections/streams.rs"]
mod streams;
#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "ftp/vsftpd.rs"]
mod vsftpd;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::process::Command;

use harness::*;
use streams::*;
use vsftpd::Vsftpd;

/// A client that downloads and uploads a file by FTP in active mode: the control connection uses CONNECT, and each data
/// connection uses BIND.
const ACTIVE_CLIENT: &str = "
import ftplib, io, socket, socks, struct, sys
relay, server = ('127.0.0.1', int(sys.argv[1])), ('127.0.0.1', int(sys.argv[2]))

def reply(connection):
    head = connection.recv(10, socket.MSG_WAITALL)
    assert head[:2] == b'\\5\\0', head
    return socket.inet_ntoa(head[4:8]), struct.unpack('>H', head[8:])[0]

class Active(ftplib.FTP):
    def makeport(self):
        self.data = socket.create_connection(relay, 20)
        self.data.sendall(b'\\5\\1\\0')
        assert self.data.recv(2, socket.MSG_WAITALL) == b'\\5\\0'
        self.data.sendall(b'\\5\\2\\0\\1' + socket.inet_aton(server[0]) + struct.pack('>H', server[1]))
        self.sendport(*reply(self.data))
        return self
    def accept(self):
        reply(self.data)
        return self.data, None
    def settimeout(self, _): pass
    def __enter__(self): return self
    def __exit__(self, *_): pass

ftp = Active()
ftp.timeout, ftp.af = 20, socket.AF_INET
ftp.sock = socks.create_connection(server, 20, proxy_type=socks.SOCKS5, proxy_addr=relay[0], proxy_port=relay[1])
ftp.file = ftp.sock.makefile('r', encoding='utf-8')
ftp.welcome = ftp.getresp()
ftp.login()
ftp.set_pasv(False)
got = io.BytesIO()
ftp.retrbinary('RETR pub/file', got.write)
ftp.storbinary('STOR incoming/copy', io.BytesIO(got.getvalue()))
ftp.sock.close()
";

fn relay(options: &str) -> Relay {
    Relay::listen(&[&format!("auto://127.0.0.1:0?{options}")])
}

/// Reads a SOCKS5 reply. Returns its code and address.
fn reply(client: &mut TcpStream) -> (u8, SocketAddr) {
    let head = read_exactly(client, 4);
    let ip: IpAddr = match head[3] {
        1 => <[u8; 4]>::try_from(read_exactly(client, 4)).unwrap().into(),
        _ => <[u8; 16]>::try_from(read_exactly(client, 16)).unwrap().into(),
    };
    let port = read_exactly(client, 2);
    (head[1], SocketAddr::new(ip, u16::from_be_bytes([port[0], port[1]])))
}

/// Sends a BIND request for a connection from `peer`. Returns the client's connection and the first reply.
fn request(relay: &Relay, peer: &str) -> (TcpStream, u8, SocketAddr) {
    let mut client = relay.connect();
    let peer: SocketAddr = peer.parse().unwrap();
    let address = match peer.ip() {
        IpAddr::V4(ip) => [&[1][..], &ip.octets()].concat(),
        IpAddr::V6(ip) => [&[4][..], &ip.octets()].concat(),
    };
    client.write_all(&[&[5, 1, 0, 5, 2, 0], &*address, &peer.port().to_be_bytes()].concat()).unwrap();
    assert_eq!(read_exactly(&mut client, 2), [5, 0]);
    let (code, bound) = reply(&mut client);
    (client, code, bound)
}

/// Returns whether the relay listens at this address. A connection attempt would not show this, because another test may
/// get a port that the relay has released.
fn is_listening(relay: &Relay, address: SocketAddr) -> bool {
    ekiden_sys::process::has_listener(relay.id(), address).unwrap()
}

#[test]
fn peer_connects_and_both_sides_exchange_data() {
    let mut relay = relay("socks_bind=true");
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let (mut client, code, bound) = request(&relay, &SocketAddr::new(ip, 21).to_string());
        assert_eq!((code, bound.ip()), (0, ip));
        let mut peer = connect_from(ip, bound);
        assert_eq!(reply(&mut client), (0, peer.local_addr().unwrap()));
        exchange_messages(&mut client, &mut peer);
        transfer_both_ways(client, peer, 100_000, 300_000);
        let closed = relay.closed();
        assert_eq!((&closed["end"], &closed["path"]), (&"finished".into(), &"bind".into()), "{closed}");
    }
}

#[test]
fn connections_of_other_hosts_are_closed() {
    let relay = relay("socks_bind=true");
    let (mut client, _, bound) = request(&relay, "127.0.0.1:21");
    assert!(is_listening(&relay, bound));
    let mut stranger = connect_from([127, 0, 0, 2], bound);
    assert!(is_closed(&mut stranger));
    let mut peer = connect_from(Ipv4Addr::LOCALHOST, bound);
    assert_eq!(reply(&mut client), (0, peer.local_addr().unwrap()));
    exchange_messages(&mut client, &mut peer);
    assert!(!is_listening(&relay, bound), "the relay accepts one connection");
}

#[test]
fn refused_requests_get_a_reply_code_and_a_logged_reason() {
    for (options, peer, code, end, detail) in [
        ("udp=true", "127.0.0.1:21", 7, "bad_handshake", "BIND, and the listener has socks_bind = false"),
        ("socks_bind=true", "0.0.0.0:0", 2, "denied", "BIND without the address of the expected peer"),
        ("socks_bind=true&deny=127.0.0.0/8", "127.0.0.1:21", 2, "denied", ""),
    ] {
        let mut relay = relay(options);
        let (mut client, found, _) = request(&relay, peer);
        assert_eq!(found, code, "{options}");
        assert!(is_closed(&mut client));
        let closed = relay.closed();
        assert_eq!((&closed["end"], closed["detail"].as_str().unwrap_or_default()), (&end.into(), detail), "{closed}");
    }
    let listener = "auto://127.0.0.1:0?socks_bind=true";
    let mut relay = Relay::run(&["-L", listener, "-F", "socks5://127.0.0.1:9"], 1);
    assert_eq!(request(&relay, "127.0.0.1:21").1, 7);
    assert_eq!(relay.closed()["detail"], "BIND, and the route to the peer does not begin with the path direct");
}

/// Each client that waits for its peer occupies a port of the relay, so at most 64 clients may wait.
#[test]
fn waiting_clients_are_limited_and_release_their_places() {
    let mut relay = relay("socks_bind=true");
    let mut waiting: Vec<_> = (0..64).map(|_| request(&relay, "127.0.0.1:21")).collect();
    assert!(waiting.iter().all(|(_, code, _)| *code == 0));
    assert_eq!(request(&relay, "127.0.0.1:21").1, 1, "general failure");
    assert_eq!(relay.closed()["end"], "exhausted");
    let (client, _, bound) = waiting.pop().unwrap();
    drop(client);
    assert_eq!(relay.closed()["end"], "reset_by_client");
    assert!(!is_listening(&relay, bound));
    let next = request(&relay, "127.0.0.1:21");
    assert_eq!(next.1, 0);
    // The place is also released when the peer has connected.
    let (mut client, _, bound) = waiting.pop().unwrap();
    let peer = connect_from(Ipv4Addr::LOCALHOST, bound);
    assert_eq!(reply(&mut client), (0, peer.local_addr().unwrap()));
    assert_eq!(request(&relay, "127.0.0.1:21").1, 0);
    drop(next);
}

#[test]
fn ftp_in_active_mode_downloads_and_uploads() {
    if programs::is_any_missing(&[PYTHON]) {
        return;
    }
    let Some(server) = Vsftpd::start() else { return };
    let bytes = pattern(1_000_000);
    server.write("pub/file", &bytes);
    let mut relay = relay("socks_bind=true");
    let ports = [relay.address().port().to_string(), server.address.port().to_string()];
    let output = Command::new(PYTHON).args(["-c", ACTIVE_CLIENT]).args(ports).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read(server.path("incoming/copy")).unwrap() == bytes);
    for direction in ["bytes_down", "bytes_up"] {
        let closed = relay.next(|event| event["event"] == "closed" && event[direction] == bytes.len());
        assert_eq!((&closed["end"], &closed["path"]), (&"finished".into(), &"bind".into()), "{closed}");
    }
}
