//! A client, a router and a server in unnamed network namespaces, which end with the test. The router sends to the
//! server through a short queue.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::thread;
use std::time::Duration;

use ekiden_sys::netns;
use socket2::{Domain, Socket, Type};

/// Timeout of a connection attempt, and of reads and writes.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Connects with a congestion control. The socket selects the control before it connects: after another control, such
/// as bbr, it would stay paced.
pub fn connect(address: SocketAddr, congestion: &str) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_tcp_congestion(congestion.as_bytes()).expect("the control is registered");
    socket.connect_timeout(&address.into(), TIMEOUT).expect("the server is there");
    let stream = TcpStream::from(socket);
    stream.set_write_timeout(Some(TIMEOUT)).expect("a timeout");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    stream
}

pub struct Host(OwnedFd);

impl Host {
    pub fn new() -> Self {
        Self(netns::new_network_namespace().expect("network namespaces: run the test as root"))
    }

    /// Runs `act` in the namespace of this host. Sockets that `act` creates stay in that namespace.
    pub fn inside<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let entered = || {
            netns::enter_network_namespace(self.0.as_fd()).expect("the namespace is open");
            act()
        };
        thread::scope(|scope| scope.spawn(entered).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    pub fn run(&self, line: &str) {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().expect("a program"));
        let output = self.inside(|| command.args(words).output()).expect("the program runs");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The path of the network namespace, as an argument of ip(8).
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

pub struct Network {
    pub client: Host,
    _router: Host,
    server: Host,
}

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);

impl Network {
    /// `queue` holds the arguments of tc-tbf(8): the rate of the line to the server, and its queue.
    pub fn new(queue: &str) -> Self {
        let [client, router, server] = [Host::new(), Host::new(), Host::new()];
        for (left, right, link) in [(&client, &router, 0), (&router, &server, 1)] {
            left.run(&format!("ip link add right type veth peer name left netns {}", right.path()));
            left.run(&format!("ip address add 10.0.{link}.1/24 dev right"));
            right.run(&format!("ip address add 10.0.{link}.2/24 dev left"));
            left.run("ip link set right up");
            right.run("ip link set left up");
        }
        router.run("sysctl -q -w net.ipv4.ip_forward=1");
        // A burst of segmentation offload would be longer than the queue, and would get one acknowledgement.
        client.run("ip link set right gso_max_segs 1");
        // A large initial window, which some congestion controls have to reduce.
        client.run("ip route add default via 10.0.0.2 initcwnd 50");
        server.run("ip route add default via 10.0.1.1");
        router.run(&format!("tc qdisc add dev right root tbf {queue}"));
        Self { client, _router: router, server }
    }

    /// A listener on the server, and its address.
    pub fn listen(&self) -> (TcpListener, SocketAddr) {
        let listener = self.server.inside(|| TcpListener::bind((SERVER, 0))).expect("a port");
        let address = listener.local_addr().expect("the listener is bound");
        (listener, address)
    }
}
