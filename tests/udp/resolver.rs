//! DNS through a UDP association: `dig` queries `dnsmasq` through a chain of relays.

use std::io::BufRead;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use crate::harness::*;
use crate::programs;
use crate::relays::*;

/// Forwards the datagrams of one UDP port to a server through SOCKS5, by PySocks, and prints the port.
const FORWARDER: &str = "
import socket, socks, sys
relay, server = int(sys.argv[1]), (sys.argv[2], int(sys.argv[3]))
inside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
inside.bind(('127.0.0.1', 0))
outside = socks.socksocket(socket.AF_INET, socket.SOCK_DGRAM)
outside.set_proxy(socks.SOCKS5, '127.0.0.1', relay)
outside.bind(('127.0.0.1', 0))
print(inside.getsockname()[1], flush=True)
while True:
    query, client = inside.recvfrom(4096)
    outside.sendto(query, server)
    inside.sendto(outside.recvfrom(4096)[0], client)
";

/// Starts dnsmasq with one name, at an address that no other test uses.
fn name_server() -> (KillOnDrop, SocketAddr) {
    let address = own_address();
    let mut command = Command::new(programs::find("dnsmasq").unwrap());
    command.args(["--no-daemon", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--bind-interfaces"]);
    command.args([&format!("--listen-address={}", address.ip()), &format!("--port={}", address.port()), "--pid-file="]);
    command.args(["--address=/name.example/192.0.2.80", "--user=root"]);
    let server = KillOnDrop(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    (server, address)
}

#[test]
fn dig_gets_its_answer_through_two_relays() {
    if programs::is_any_missing(&["dig", "dnsmasq", PYTHON]) {
        return;
    }
    let (_server, address) = name_server();
    let mut chain = Chain::start(2);
    let mut forwarder = Command::new(PYTHON);
    forwarder.args([
        "-c",
        FORWARDER,
        &chain.home.address().port().to_string(),
        &address.ip().to_string(),
        &address.port().to_string(),
    ]);
    let mut forwarder = KillOnDrop(forwarder.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    let read = std::io::BufReader::new(forwarder.0.stdout.take().unwrap()).read_line(&mut line);
    assert!(read.is_ok() && !line.is_empty(), "python3-socks is missing, scripts/setup installs it");
    let answer = eventually("an answer of dnsmasq", || {
        let dig = Command::new("dig")
            .args(["@127.0.0.1", "-p", line.trim(), "+short", "+tries=1", "+timeout=5", "name.example", "A"])
            .output()
            .unwrap();
        dig.status.success().then(|| String::from_utf8(dig.stdout).unwrap())
    });
    assert_eq!(answer.trim(), "192.0.2.80");
    drop(forwarder);
    let closed = chain.relays[1].closed();
    assert_eq!(closed["path"], "udp", "{closed}");
}
