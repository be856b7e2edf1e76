//! A connection over loopback under a congestion control that is chosen by name.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

use ekiden_testing::TEST_TIMEOUT;
use socket2::{Domain, Socket, Type};

/// Both ends of a connection. The near end uses the congestion control.
pub struct LoopbackConnection {
    pub near: TcpStream,
    far: TcpStream,
}

impl LoopbackConnection {
    /// A connection whose near end selects `name` before it connects.
    pub fn connect_with(name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = socket_with(name);
        socket.connect(&listener.local_addr().unwrap().into()).unwrap();
        Self::new(socket.into(), listener.accept().unwrap().0)
    }

    pub fn new(near: TcpStream, far: TcpStream) -> Self {
        for end in [&near, &far] {
            end.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            end.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        }
        Self { near, far }
    }

    /// Sends `count` bytes to the far end and a reply back, so that all bytes are acknowledged.
    pub fn transfer(&mut self, count: usize) {
        let (near, far) = (&mut self.near, &mut self.far);
        std::thread::scope(|scope| {
            scope.spawn(|| near.write_all(&vec![7; count]).unwrap());
            let mut received = vec![0; count];
            far.read_exact(&mut received).unwrap();
            assert!(received.iter().all(|byte| *byte == 7));
        });
        self.far.write_all(b"done").unwrap();
        self.near.read_exact(&mut [0; 4]).unwrap();
    }
}

/// A socket that uses `name`.
pub fn socket_with(name: &str) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_tcp_congestion(name.as_bytes()).unwrap();
    socket
}

/// A listener that uses `name`.
pub fn listener_with(name: &str) -> TcpListener {
    let socket = socket_with(name);
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(1).unwrap();
    socket.into()
}

/// Runs the test of this name again in a child process, with a private BPF file system at /sys/fs/bpf. Returns false in
/// the child process.
pub fn run_with_bpf_mount(test: &str) -> bool {
    const INSIDE: &str = "EKIDEN_TEST_MOUNT_NAMESPACE";
    if std::env::var_os(INSIDE).is_some() {
        return false;
    }
    let script = "mount -t bpf bpf /sys/fs/bpf && exec \"$@\"";
    let mut child = Command::new("unshare");
    child.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
    child.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    let output = child.env(INSIDE, "1").stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    // A skip in the child process is a skip of this test, so its reason is printed here.
    text.lines()
        .filter(|line| line.starts_with("skipped: "))
        .for_each(|line| drop(writeln!(std::io::stderr(), "{line}")));
    true
}
