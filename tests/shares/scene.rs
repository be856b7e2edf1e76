//! A client, a relay that shares its interface toward the client, a server that has no end, and downloads by curl.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::*;
use crate::network::*;
use crate::programs::missing;

/// What is shared, in bits a second.
pub const RATE: f64 = 20e6;

/// The same as the configuration has it.
pub const SHARED: &str = "[[interface]]\nname = \"left\"\nrate = \"20Mbit/s\"\n";

/// What is asked for to get an answer that comes at [`SLOW`].
pub const SLOWLY: &str = "/slowly";

/// Bits a second.
pub const SLOW: f64 = 2e6;

/// What a download has to have before it counts: it has begun.
const BEGUN: u64 = 200_000;

/// Hosts in a row, and a relay in the middle.
pub struct Scene {
    pub row: Row,
    pub relay: Relay,
    pub family: Family,
    /// Of the server.
    pub server: SocketAddr,
    folder: Folder,
}

impl Scene {
    /// With this configuration, whose listeners are made by [`listener`].
    pub fn new(text: &str) -> Option<Self> {
        Self::of(Family::V4, text)
    }

    /// The same for one family of addresses.
    pub fn of(family: Family, text: &str) -> Option<Self> {
        if missing(&["curl"]) {
            return None;
        }
        let row =
            Row::of(&["client", "relay", "server"], if family == Family::V4 { &[Family::V4] } else { &[Family::V6] })?;
        let server = endless(&row, family);
        let folder = Folder::new();
        let path = folder.write("ekiden.toml", told(text, server));
        let listeners = text.matches("[[listener]]").count();
        let mut command = ekiden();
        command.args(["run", "-c"]).arg(path);
        let relay = row["relay"].inside(|| Relay::start(&mut command, listeners));
        Some(Self { row, relay, family, server, folder })
    }

    /// Offers the relay another configuration.
    pub fn offer(&self, text: &str) {
        self.folder.write("ekiden.toml", told(text, self.server));
        self.relay.signal("HUP");
    }

    /// A download by the listener at this port.
    pub fn download(&self, port: u16) -> Download {
        self.download_by(&[], SocketAddr::new(self.relay_ip(), port))
    }

    /// A download from an address, with more arguments for curl.
    pub fn download_by(&self, arguments: &[&str], address: SocketAddr) -> Download {
        let folder = Folder::new();
        let file = folder.write("got", "");
        let mut command = Command::new("curl");
        command.args(["--silent", "--output"]).arg(&file).args(arguments).arg(format!("http://{address}/"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = self.row["client"].inside(|| command.spawn()).expect("curl runs");
        Download { child, file, _folder: folder }
    }

    /// Where the client finds the relay.
    pub fn relay_ip(&self) -> IpAddr {
        self.row.left("relay", self.family)
    }

    /// The interface as `ekiden status --json` has it.
    pub fn interface(&self) -> Value {
        let answer: Value = serde_json::from_str(&self.relay.ask("/api/sessions")).expect("JSON");
        answer["interfaces"][0].clone()
    }
}

/// A listener for one congestion control, which leads to the server.
pub fn listener(port: u16, congestion: &str, more: &str) -> String {
    format!(
        "[profile.p{port}]\ncongestion = \"{congestion}\"\n[[listener]]\nname = \"l{port}\"\nbind = \"[::]:{port}\"\n\
         kind = \"tcp\"\ntarget = \"SERVER\"\nallow_open = true\nallow_private = true\nprofile = \"p{port}\"\n{more}\n"
    )
}

/// The configuration with its version, for two threads.
fn told(text: &str, server: SocketAddr) -> String {
    format!("version = 1\nthreads = 2\n{}", text.replace("SERVER", &server.to_string()))
}

/// A server whose answers do not end.
fn endless(row: &Row, family: Family) -> SocketAddr {
    let (listener, address) = row.server(family);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(mut stream: TcpStream) {
    let asked = read_head(&mut stream);
    let (piece, pause) = if asked.contains(SLOWLY) {
        (SLOW as usize / 8 / 50, Duration::from_millis(20))
    } else {
        (65_536, Duration::ZERO)
    };
    let piece = vec![7; piece];
    let mut written = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    while written.is_ok() {
        std::thread::park_timeout(pause);
        written = stream.write_all(&piece);
    }
}

/// A download that runs until it is dropped.
pub struct Download {
    child: Child,
    file: PathBuf,
    _folder: Folder,
}

impl Download {
    /// What it has got.
    pub fn bytes(&self) -> u64 {
        std::fs::metadata(&self.file).expect("the file of the test").len()
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What downloads got over some time.
#[derive(Debug)]
pub struct Got {
    pub bytes: Vec<u64>,
    pub span: Duration,
}

impl Got {
    /// Bits a second of all.
    pub fn rate(&self) -> f64 {
        self.bytes.iter().sum::<u64>() as f64 * 8.0 / self.span.as_secs_f64()
    }

    /// Jain's index for these weights.
    pub fn jain(&self, weights: &[f64]) -> f64 {
        let each: Vec<f64> = self.bytes.iter().zip(weights).map(|(bytes, weight)| *bytes as f64 / weight).collect();
        let squares: f64 = each.iter().map(|x| x * x).sum();
        each.iter().sum::<f64>().powi(2) / (each.len() as f64 * squares)
    }
}

/// Nobody gets more than there is. A look may count some of what came before it, where the one who reads is late.
pub fn is_at_most(got: &Got, rate: f64) {
    let late = Duration::from_millis(500).as_secs_f64() * rate;
    let most = rate * got.span.as_secs_f64() + late;
    assert!(got.bytes.iter().sum::<u64>() as f64 * 8.0 < most, "more than {rate} bit/s: {got:?}");
}

/// The first of a few looks at which it is so: a machine that does something else may be late.
pub fn at_last(is_so: impl Fn(&Got) -> bool, look: impl Fn() -> Got) -> Got {
    let mut looks = Vec::new();
    for _ in 0..5 {
        let got = look();
        if is_so(&got) {
            return got;
        }
        looks.push(got);
    }
    panic!("at no look: {looks:?}")
}

/// Waits until all have begun, and then until they have so many bytes more, all together.
pub fn watch(downloads: &[&Download], bytes: u64) -> Got {
    eventually("downloads that have begun", || downloads.iter().all(|one| one.bytes() > BEGUN).then_some(()));
    let before: Vec<u64> = downloads.iter().map(|one| one.bytes()).collect();
    let begun = Instant::now();
    eventually("more bytes", || {
        let got: Vec<u64> = downloads.iter().zip(&before).map(|(one, before)| one.bytes() - before).collect();
        (got.iter().sum::<u64>() >= bytes).then(|| Got { bytes: got, span: begun.elapsed() })
    })
}
