//! Hosts in separate network namespaces, connected in a row by veth pairs. The namespaces have no names: they exist
//! only as long as this process or a program inside them, so that nothing remains after the test, even if it is killed.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

use crate::harness::*;
use crate::programs::is_any_missing;

/// The IP version that carries TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// The prefix length of a link's network.
    fn prefix_length(self) -> u8 {
        match self {
            Self::V4 => 24,
            Self::V6 => 64,
        }
    }
}

pub static BOTH: [Family; 2] = [Family::V4, Family::V6];

/// The MSS that the first host of a row announces. Every other host announces a larger one, so that the MSS shows a
/// server which host has opened a connection.
pub const CLIENT_MSS: u16 = 1200;

/// Rules of a server that drop every SYN, until the table `inet silence` is deleted, and count the SYNs of the client
/// and of other hosts.
pub const DROP_ALL_SYNS: &str = "table inet silence { counter clients { }; counter others { }; \
    chain input { type filter hook input priority 0; tcp flags & (syn | ack) == syn jump first; }; \
    chain first { tcp option maxseg size <= 1200 counter name clients drop; counter name others drop; }; }";

/// Rules of a server that drop the SYNs of all hosts but the client.
pub const DROP_RELAY_SYNS: &str = "table inet silence { chain input { type filter hook input priority 0; \
    tcp flags & (syn | ack) == syn tcp option maxseg size > 1200 drop; }; }";

/// Rules of a server that count the SYNs of the client.
pub const COUNT_CLIENT_SYNS: &str = "table inet first { counter clients { }; chain input { type filter hook input priority 0; \
    tcp flags & (syn | ack) == syn tcp option maxseg size <= 1200 counter name clients; }; }";

/// Rules of a client that drop the retransmissions of its SYNs.
pub const DROP_RETRANSMISSIONS: &str = "table inet once { set seen { type inet_service . inet_service; size 1000; flags dynamic; }; \
    chain output { type filter hook output priority 0; tcp flags & (syn | ack) == syn jump first; }; \
    chain first { tcp sport . tcp dport @seen drop; add @seen { tcp sport . tcp dport }; }; }";

/// The number of the link that [`Row::shortcut`] adds.
const SHORTCUT_LINK: usize = 99;

/// A host.
pub struct Host {
    namespace: OwnedFd,
}

impl Host {
    /// The path of the namespace, for ip(8).
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd())
    }

    /// Runs `act` on this host. Sockets and programs that it creates stay on the host.
    pub fn inside<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let entered = || {
            ekiden_sys::netns::enter_network_namespace(self.namespace.as_fd()).expect("the namespace is open");
            act()
        };
        thread::scope(|scope| scope.spawn(entered).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Runs a program on this host with this input. The program must succeed. Returns its output.
    pub fn run(&self, program: &str, arguments: &[&str], input: &str) -> String {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.inside(|| command.spawn()).expect("the program runs");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("the program reads");
        let output = child.wait_with_output().expect("the program ends");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {stderr}\n{input}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs commands of ip(8), one per line.
    pub fn ip(&self, commands: &str) {
        self.run("ip", &["-batch", "-"], commands);
    }

    /// Adds rules by nft(8).
    pub fn nft(&self, rules: &str) {
        self.run("nft", &["-f", "-"], rules);
    }

    /// Number of packets that a named counter of nft(8) has counted.
    pub fn counter(&self, table: &str, name: &str) -> u64 {
        let shown = self.run("nft", &["list", "counter", "inet", table, name], "");
        let (_, count) = shown.split_once("packets ").expect("a counter");
        count.split(' ').next().unwrap().parse().unwrap()
    }

    pub fn set(&self, key: &str, value: &str) {
        let path = format!("/proc/sys/net/{key}");
        self.inside(|| std::fs::write(&path, value)).unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Listens at every address of the host, on a port that the kernel chooses.
    pub fn listen(&self) -> (TcpListener, u16) {
        let listener = self.inside(|| TcpListener::bind("[::]:0")).expect("a port");
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    /// Connects from this host.
    pub fn connect(&self, address: SocketAddr) -> TcpStream {
        self.inside(|| connect(address))
    }

    /// Like `connect`, for an address that may not answer.
    pub fn try_connect(&self, address: SocketAddr) -> std::io::Result<TcpStream> {
        let stream = self.inside(|| TcpStream::connect_timeout(&address, TEST_TIMEOUT))?;
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        Ok(stream)
    }

    /// Connects from this host, and checks that the connection is reset.
    pub fn assert_reset(&self, address: SocketAddr) {
        match self.try_connect(address) {
            Ok(mut client) => assert!(is_reset(&mut client), "{address}"),
            // The reset has arrived before connect(2) returned.
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{address}"),
        }
    }

    /// Like `try_connect`, in a thread of its own.
    pub fn try_connecting(&self, address: SocketAddr) -> JoinHandle<std::io::Result<TcpStream>> {
        let namespace = self.namespace.try_clone().expect("a descriptor");
        thread::spawn(move || Host { namespace }.try_connect(address))
    }

    pub fn interfaces_are_up(&self) -> bool {
        let shown = self.run("ip", &["-o", "link", "show", "type", "veth"], "");
        shown.lines().all(|line| line.contains(" state UP "))
    }

    /// Waits until other hosts can resolve the IPv6 addresses of this host. The kernel joins the solicited-node
    /// multicast group of an address (RFC 4861, 7.2.1) shortly after it has the address; an earlier neighbour
    /// solicitation is not answered, and the packet that caused it waits for one second. Addresses are added without
    /// `nodad`, because an address with `nodad` is never tentative, so that no state would show that the group has been
    /// joined.
    fn wait_resolvable(&self) {
        let tentative = || self.run("ip", &["-6", "-o", "address", "show", "tentative"], "");
        eventually("usable IPv6 addresses", || tentative().is_empty().then_some(()));
    }
}

/// Hosts in a row, which forward for each other. Each host has an interface `left` toward the first host and an
/// interface `right` toward the last; link number `n`, counted from 0, has the networks 10.0.`n`.0/24 and
/// fd00:0:0:`n`::/64.
pub struct Row {
    names: &'static [&'static str],
    hosts: Vec<Host>,
    pub families: &'static [Family],
}

impl std::ops::Index<&str> for Row {
    type Output = Host;

    fn index(&self, name: &str) -> &Host {
        &self.hosts[self.place(name)]
    }
}

impl Row {
    /// Makes a row of hosts. Returns `None`, with a message, if network namespaces are not permitted or a program is
    /// missing.
    pub fn new(names: &'static [&'static str]) -> Option<Self> {
        Self::of(names, &BOTH)
    }

    /// Like `new`, with addresses of these families only.
    pub fn of(names: &'static [&'static str], families: &'static [Family]) -> Option<Self> {
        if is_any_missing(&["ip", "nft"]) {
            return None;
        }
        let make = |_| ekiden_sys::netns::new_network_namespace().map(|namespace| Host { namespace });
        let hosts = match names.iter().map(make).collect::<Result<Vec<_>, _>>() {
            Ok(hosts) => hosts,
            Err(error) => {
                skipped(format_args!("no network namespaces: {error}; this test needs root"));
                return None;
            }
        };
        let row = Self { names, hosts, families };
        row.hosts.iter().for_each(set_sysctls);
        for (host, next) in row.hosts.iter().zip(&row.hosts[1..]) {
            host.ip(&format!("link add right type veth peer name left netns {}\nlink set right up\n", next.path()));
            next.ip("link set left up\n");
        }
        for host in &row.hosts {
            eventually("interfaces that are up", || host.interfaces_are_up().then_some(()));
        }
        for (place, host) in row.hosts.iter().enumerate() {
            host.ip(&families.iter().map(|family| row.address_commands(place, *family)).collect::<String>());
        }
        row.hosts.iter().for_each(Host::wait_resolvable);
        Some(row)
    }

    /// Commands of ip(8) for the addresses and routes of a host.
    fn address_commands(&self, place: usize, family: Family) -> String {
        let (last, mut text) = (self.hosts.len() - 1, String::new());
        let length = family.prefix_length();
        let sides = [("left", place.checked_sub(1), 2), ("right", (place < last).then_some(place), 1)];
        for (side, link, end) in sides {
            let Some(link) = link else { continue };
            writeln!(text, "address add {}/{length} dev {side}", address(family, link, end)).unwrap();
        }
        if place > 0 {
            let via = address(family, place - 1, 1);
            writeln!(text, "route add default via {via}").unwrap();
        } else {
            let via = address(family, 0, 2);
            writeln!(text, "route add default via {via} advmss {CLIENT_MSS}").unwrap();
        }
        let beyond = place + 1..if place == 0 { 0 } else { last };
        for link in beyond {
            let (network, via) = (address(family, link, 0), address(family, place, 2));
            writeln!(text, "route add {network}/{length} via {via}").unwrap();
        }
        text
    }

    fn place(&self, name: &str) -> usize {
        self.names.iter().position(|known| *known == name).unwrap_or_else(|| panic!("no host {name}"))
    }

    /// Adds a link that bypasses the hosts between `from` and `to`, for packets from host `from` to the address
    /// `target` only.
    pub fn shortcut(&self, from: &str, to: &str, family: Family, target: IpAddr) {
        let (here, there) = (&self[from], &self[to]);
        if family == self.families[0] {
            here.ip(&format!(
                "link add around type veth peer name around netns {}\nlink set around up\n",
                there.path()
            ));
            there.ip("link set around up\n");
            for host in [here, there] {
                eventually("interfaces that are up", || host.interfaces_are_up().then_some(()));
            }
        }
        let length = family.prefix_length();
        for (host, end) in [(here, 1), (there, 2)] {
            host.ip(&format!("address add {}/{length} dev around\n", address(family, SHORTCUT_LINK, end)));
            host.wait_resolvable();
        }
        // The source address is the one that the other host reaches through the row.
        let (via, place) = (address(family, SHORTCUT_LINK, 2), self.place(from));
        let own = if place == 0 { address(family, 0, 1) } else { address(family, place - 1, 2) };
        here.ip(&format!("route add {target} via {via} src {own} advmss {CLIENT_MSS}\n"));
    }

    /// The address of a host on its link toward the first host.
    pub fn left(&self, name: &str, family: Family) -> IpAddr {
        address(family, self.place(name) - 1, 2)
    }

    /// The address of a host on its link toward the last host.
    pub fn right(&self, name: &str, family: Family) -> IpAddr {
        address(family, self.place(name), 1)
    }

    /// A listener on the last host, and its address.
    pub fn server(&self, family: Family) -> (TcpListener, SocketAddr) {
        let name = self.names[self.names.len() - 1];
        let (listener, port) = self[name].listen();
        (listener, SocketAddr::new(self.left(name, family), port))
    }
}

/// A port that never has a listener. A port whose listener has just been closed may still be open: a process that
/// another test forks at that moment holds a copy of the descriptor until execve(2).
pub const CLOSED_PORT: u16 = 9;

/// Enables forwarding, and disables reverse-path filtering and IPv6 duplicate address detection, which takes time. Must
/// be called before the host has interfaces.
fn set_sysctls(host: &Host) {
    for (key, value) in [
        ("ipv4/conf/all/forwarding", "1"),
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv6/conf/all/accept_dad", "0"),
        ("ipv6/conf/default/accept_dad", "0"),
    ] {
        host.set(key, value);
    }
    host.ip("link set lo up\n");
}

/// Address number `end` of a link's network.
fn address(family: Family, link: usize, end: u16) -> IpAddr {
    let link = u16::try_from(link).expect("a short row");
    match family {
        Family::V4 => Ipv4Addr::new(10, 0, link.to_be_bytes()[1], end.to_be_bytes()[1]).into(),
        Family::V6 => Ipv6Addr::new(0xfd00, 0, 0, link, 0, 0, 0, end).into(),
    }
}

/// Whether another host than the client has opened the accepted connection.
pub fn is_relayed(accepted: &TcpStream) -> bool {
    socket2::SockRef::from(accepted).tcp_mss().unwrap() > u32::from(CLIENT_MSS)
}

/// Converts an IPv4-mapped IPv6 address, which a dual-stack socket returns, to IPv4.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
