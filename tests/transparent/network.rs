//! Hosts in network namespaces of their own, joined by veth pairs in a row. The namespaces have no names: they last as
//! long as this process or a program inside, so that nothing remains after the test, however it ends.

use std::fmt::Write as _;
use std::io::Write as _;
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
    /// The length of a link's network.
    fn prefix_length(self) -> u8 {
        match self {
            Self::V4 => 24,
            Self::V6 => 64,
        }
    }
}

pub static BOTH: [Family; 2] = [Family::V4, Family::V6];

/// The MSS that the first host of a row announces. Every other host announces more, so that a server can tell which
/// host made its connection.
pub const CLIENT_MSS: u16 = 1200;

/// Rules of a server that answers no first packet, until its table `inet silence` is deleted.
pub const DROP_ALL_SYNS: &str = "table inet silence { counter clients { }; counter others { }; \
    chain input { type filter hook input priority 0; tcp flags & (syn | ack) == syn jump first; }; \
    chain first { tcp option maxseg size <= 1200 counter name clients drop; counter name others drop; }; }";

/// Drops first packets that are not the client's own.
pub const DROP_RELAY_SYNS: &str = "table inet silence { chain input { type filter hook input priority 0; \
    tcp flags & (syn | ack) == syn tcp option maxseg size > 1200 drop; }; }";

/// Counts the first packets of clients that reach a server.
pub const COUNT_CLIENT_SYNS: &str = "table inet first { counter clients { }; chain input { type filter hook input priority 0; \
    tcp flags & (syn | ack) == syn tcp option maxseg size <= 1200 counter name clients; }; }";

/// Rules of a client that drop the retransmissions of first packets.
pub const DROP_RETRANSMISSIONS: &str = "table inet once { set seen { type inet_service . inet_service; size 1000; flags dynamic; }; \
    chain output { type filter hook output priority 0; tcp flags & (syn | ack) == syn jump first; }; \
    chain first { tcp sport . tcp dport @seen drop; add @seen { tcp sport . tcp dport }; }; }";

/// The number of the link past all hosts.
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

    /// Runs a program with this input. The program has to succeed; returns its output.
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

    /// Commands of ip(8), one a line.
    pub fn ip(&self, commands: &str) {
        self.run("ip", &["-batch", "-"], commands);
    }

    /// Rules of nft(8).
    pub fn nft(&self, rules: &str) {
        self.run("nft", &["-f", "-"], rules);
    }

    /// How many packets a named counter of nft(8) has counted.
    pub fn counter(&self, table: &str, name: &str) -> u64 {
        let shown = self.run("nft", &["list", "counter", "inet", table, name], "");
        let (_, count) = shown.split_once("packets ").expect("a counter");
        count.split(' ').next().unwrap().parse().unwrap()
    }

    pub fn set(&self, key: &str, value: &str) {
        let path = format!("/proc/sys/net/{key}");
        self.inside(|| std::fs::write(&path, value)).unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Listens at every address of the host, on a port the kernel chooses.
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
        let stream = self.inside(|| TcpStream::connect_timeout(&address, PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Ok(stream)
    }

    /// Like `try_connect`, in a thread of its own, with the kernel's timeout.
    pub fn try_connecting(&self, address: SocketAddr) -> JoinHandle<std::io::Result<TcpStream>> {
        let namespace = self.namespace.try_clone().expect("a descriptor");
        thread::spawn(move || Host { namespace }.try_connect(address))
    }

    pub fn interfaces_are_up(&self) -> bool {
        let shown = self.run("ip", &["-o", "link", "show", "type", "veth"], "");
        shown.lines().all(|line| line.contains(" state UP "))
    }

    /// Waits until other hosts can resolve its addresses. The kernel joins the group by which neighbours ask for an IPv6 address
    /// (RFC 4861, 7.2.1) a moment after it has the address; an earlier question is not answered, and the packet behind
    /// it waits for a second. With `nodad` an address is never tentative, and no state shows that moment.
    fn wait_resolvable(&self) {
        let tentative = || self.run("ip", &["-6", "-o", "address", "show", "tentative"], "");
        eventually("usable IPv6 addresses", || tentative().is_empty().then_some(()));
    }
}

/// Hosts in a row, which forward for each other. Each has an interface `left` toward the first and one `right` toward the
/// last of them; link number `n`, counted from 0, has the networks 10.0.`n`.0/24 and fd00:0:0:`n`::/64.
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
    /// Makes a row where namespaces are permitted. Else returns `None` with a message.
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

    /// Addresses and routes of a host.
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

    /// A path from one host to another past all others, for packets of `from` to `to` only.
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
        // Connections keep the source address that the other host answers through the row.
        let (via, place) = (address(family, SHORTCUT_LINK, 2), self.place(from));
        let own = if place == 0 { address(family, 0, 1) } else { address(family, place - 1, 2) };
        here.ip(&format!("route add {target} via {via} src {own} advmss {CLIENT_MSS}\n"));
    }

    /// The address of a host on its link toward the first.
    pub fn left(&self, name: &str, family: Family) -> IpAddr {
        address(family, self.place(name) - 1, 2)
    }

    /// The address of a host on its link toward the last.
    pub fn right(&self, name: &str, family: Family) -> IpAddr {
        address(family, self.place(name), 1)
    }

    /// A listener on the last host, and where it is reached.
    pub fn server(&self, family: Family) -> (TcpListener, SocketAddr) {
        let name = self.names[self.names.len() - 1];
        let (listener, port) = self[name].listen();
        (listener, SocketAddr::new(self.left(name, family), port))
    }
}

/// A port without a listener at any time. A port that a listener has just closed may still be open: a program that
/// another test starts at that moment has a copy of it until it runs (fork(2)).
pub const CLOSED_PORT: u16 = 9;

/// Enables forwarding, and disables address checks that take time, before there are interfaces.
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

/// Number `end` of a link's network.
fn address(family: Family, link: usize, end: u16) -> IpAddr {
    let link = u16::try_from(link).expect("a short row");
    match family {
        Family::V4 => Ipv4Addr::new(10, 0, link.to_be_bytes()[1], end.to_be_bytes()[1]).into(),
        Family::V6 => Ipv6Addr::new(0xfd00, 0, 0, link, 0, 0, 0, end).into(),
    }
}

/// Whether the accepted connection was made by another host than the client.
pub fn is_relayed(accepted: &TcpStream) -> bool {
    socket2::SockRef::from(accepted).tcp_mss().unwrap() > u32::from(CLIENT_MSS)
}

/// A dual-stack socket shows IPv4 addresses in IPv6.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
