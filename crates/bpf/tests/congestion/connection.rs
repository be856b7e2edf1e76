//! A connection over loopback under a congestion control that is chosen by name.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// Both ends of it; the first one is under the congestion control.
pub struct LoopbackConnection {
    pub near: TcpStream,
    far: TcpStream,
}

impl LoopbackConnection {
    /// One whose near end has chosen `name`, before it was connected.
    pub fn connect_with(name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = socket_with(name);
        socket.connect(&listener.local_addr().unwrap().into()).unwrap();
        Self::new(socket.into(), listener.accept().unwrap().0)
    }

    pub fn new(near: TcpStream, far: TcpStream) -> Self {
        for end in [&near, &far] {
            end.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            end.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        }
        Self { near, far }
    }

    /// Sends this many bytes there and a word back, so that there are acknowledgements of all.
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

/// A socket that has chosen `name`.
pub fn socket_with(name: &str) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_tcp_congestion(name.as_bytes()).unwrap();
    socket
}

/// A listener that has chosen `name`.
pub fn listener_with(name: &str) -> TcpListener {
    let socket = socket_with(name);
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(1).unwrap();
    socket.into()
}

/// Runs the test of this name once more, where /sys/fs/bpf is a file system of its own that ends with it; false in there.
pub fn run_with_bpf_mount(test: &str) -> bool {
    const INSIDE: &str = "EKIDEN_TEST_ROOM";
    if std::env::var_os(INSIDE).is_some() {
        return false;
    }
    let script = "mount -t bpf bpf /sys/fs/bpf && exec \"$@\"";
    let mut room = Command::new("unshare");
    room.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
    room.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    let output = room.env(INSIDE, "1").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    // The reason of a skipped test belongs to the output of this one.
    said.lines()
        .filter(|line| line.starts_with("skipped: "))
        .for_each(|line| drop(writeln!(std::io::stderr(), "{line}")));
    true
}
