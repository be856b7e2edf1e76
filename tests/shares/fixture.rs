//! A client, a relay that shares its interface toward the client, a server with endless answers, and downloads by curl.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::*;
use crate::network::*;
use crate::programs::is_any_missing;

/// The shared rate, in bits per second.
pub const RATE: f64 = 20e6;

/// The `[[interface]]` table with [`RATE`].
pub const SHARED: &str = "[[interface]]\nname = \"left\"\nrate = \"20Mbit/s\"\n";

/// The request target of a response that the server sends at [`SLOW`].
pub const SLOW_PATH: &str = "/slowly";

/// The request target of a response with [`FINITE`] bytes.
pub const FINITE_PATH: &str = "/finite";

/// Bytes of two seconds at [`RATE`].
pub const FINITE: u64 = 5_000_000;

/// The rate of a slow response, in bits per second.
pub const SLOW: f64 = 2e6;

/// The bytes after which a download counts as begun.
const BEGUN: u64 = 200_000;

/// Hosts in a row, and a relay in the middle.
pub struct Fixture {
    pub row: Row,
    pub relay: Relay,
    pub family: Family,
    /// The address of the server.
    pub server: SocketAddr,
    folder: Folder,
}

impl Fixture {
    /// Starts a fixture with this configuration, whose listeners are made by [`listener`].
    pub fn new(text: &str) -> Option<Self> {
        Self::of(Family::V4, text)
    }

    /// Like `new`, for one family of addresses.
    pub fn of(family: Family, text: &str) -> Option<Self> {
        if is_any_missing(&["curl"]) {
            return None;
        }
        let row =
            Row::of(&["client", "relay", "server"], if family == Family::V4 { &[Family::V4] } else { &[Family::V6] })?;
        let server = endless(&row, family);
        let folder = Folder::new();
        let path = folder.write("ekiden.toml", configuration(text, server));
        let listeners = text.matches("[[listener]]").count();
        let mut command = ekiden();
        command.args(["run", "-c"]).arg(path);
        let relay = row["relay"].inside(|| Relay::start(&mut command, listeners));
        Some(Self { row, relay, family, server, folder })
    }

    /// Writes another configuration, and sends SIGHUP to the relay.
    pub fn send_reload(&self, text: &str) {
        self.folder.write("ekiden.toml", configuration(text, self.server));
        self.relay.signal("HUP");
    }

    /// Starts a download through the listener at this port.
    pub fn download(&self, port: u16) -> Download {
        self.download_by(&[], SocketAddr::new(self.relay_ip(), port))
    }

    /// Starts a download from `address`, with more arguments for curl.
    pub fn download_by(&self, arguments: &[&str], address: SocketAddr) -> Download {
        let folder = Folder::new();
        let file = folder.write("got", "");
        let mut command = Command::new("curl");
        command.args(["--silent", "--output"]).arg(&file).args(arguments).arg(format!("http://{address}/"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = self.row["client"].inside(|| command.spawn()).expect("curl runs");
        Download { _child: KillOnDrop(child), file, _folder: folder }
    }

    /// The relay's address on the link to the client.
    pub fn relay_ip(&self) -> IpAddr {
        self.row.left("relay", self.family)
    }

    /// The first interface in `/api/sessions`; null if there is none.
    pub fn interface(&self) -> Value {
        let answer: Value = serde_json::from_str(&self.relay.ask("/api/sessions")).expect("JSON");
        answer["interfaces"][0].clone()
    }
}

/// A listener with its own congestion control, whose target is the server.
pub fn listener(port: u16, congestion: &str, more: &str) -> String {
    format!(
        "[profile.p{port}]\ncongestion = \"{congestion}\"\n[[listener]]\nname = \"l{port}\"\nbind = \"[::]:{port}\"\n\
         kind = \"tcp\"\ntarget = \"SERVER\"\nallow_open = true\nallow_private = true\nprofile = \"p{port}\"\n{more}\n"
    )
}

/// The complete configuration, with two threads and the address of the server.
fn configuration(text: &str, server: SocketAddr) -> String {
    format!("version = 1\nthreads = 2\n{}", text.replace("SERVER", &server.to_string()))
}

/// Starts a server whose responses do not end, except that to [`FINITE_PATH`].
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
    let (piece, pause) = if asked.contains(SLOW_PATH) {
        (SLOW as usize / 8 / 50, Duration::from_millis(20))
    } else {
        (65_536, Duration::ZERO)
    };
    let piece = vec![7; piece];
    let mut written = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    if asked.contains(FINITE_PATH) {
        return stream.write_all(&vec![7; FINITE as usize]).expect("the client reads all");
    }
    while written.is_ok() {
        std::thread::park_timeout(pause);
        written = stream.write_all(&piece);
    }
}

/// A download that runs until it is dropped.
pub struct Download {
    _child: KillOnDrop,
    file: PathBuf,
    _folder: Folder,
}

impl Download {
    /// The bytes received.
    pub fn bytes(&self) -> u64 {
        std::fs::metadata(&self.file).expect("the file of the test").len()
    }
}

/// A section of the relay that sends on the interface `left`, as the kernel reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// The ports of the relay and of its peer.
    ports: (u16, u16),
    /// Payload of a full packet, and the relay's figure for its headers, in bytes.
    segment: u64,
    headers: u64,
    /// Payload sent so far, in bytes.
    sent: u64,
    /// The ceiling of the send rate (`SO_MAX_PACING_RATE`), in bits of payload per second.
    pub ceiling: Option<u64>,
}

impl Section {
    /// Parses a line of ss(8). Only a section that has sent more than [`BEGUN`] bytes is returned.
    fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let port = |at: usize| words.get(at)?.rsplit(':').next()?.parse().ok();
        let number = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.parse().ok());
        let pacing = words.iter().skip_while(|word| **word != "pacing_rate").nth(1);
        let ceiling = pacing.and_then(|rates| rates.split_once('/')?.1.strip_suffix("bps")?.parse().ok());
        let sent = number("bytes_sent:").filter(|sent| *sent > BEGUN)?;
        // Headers of the link, of IP by the family of the socket, and of TCP with or without timestamps.
        let ip = if words[2].starts_with('[') { 40 } else { 20 };
        let headers = 14 + ip + 20 + if words.contains(&"ts") { 12 } else { 0 };
        Some(Self { ports: (port(2)?, port(3)?), segment: number("mss:")?, headers, sent, ceiling })
    }

    /// Length of a full packet on the wire, in bytes.
    fn packet(&self) -> u64 {
        self.segment + self.headers
    }

    /// Bits of payload per second that the section may send with this share, which includes headers.
    fn part_of(&self, share: f64) -> u64 {
        (share / 8.0) as u64 * self.segment / self.packet() * 8
    }
}

impl Fixture {
    /// The sections that send to the clients.
    pub fn sections(&self) -> Vec<Section> {
        let shown = self.row["relay"].run("ss", &["-HtinoO", "state", "established"], "");
        let own = self.relay_ip().to_string();
        let is_theirs = |line: &&str| line.split_whitespace().nth(2).is_some_and(|from| from.contains(&own));
        shown.lines().filter(is_theirs).filter_map(Section::read).collect()
    }

    /// Waits until the ceilings of the sections equal these shares, in bits per second and ascending.
    ///
    /// Ceilings equal the shares while each section uses its whole share. A section whose sender waits for a CPU sends
    /// less for a moment, and the other sections get the rest: `proto/src/share` tests that arithmetic in virtual time.
    pub fn wait_for_shares(&self, shares: &[f64]) {
        eventually(&format!("shares of {shares:?}"), || {
            let mut sections = self.sections();
            sections.sort_by_key(|section| section.ceiling);
            let exact = |(section, share): (&Section, &f64)| section.ceiling == Some(section.part_of(*share));
            (sections.len() == shares.len() && sections.iter().zip(shares).all(exact)).then_some(())
        });
    }

    /// Waits until no section has a ceiling.
    pub fn wait_unlimited(&self) {
        eventually("sections without a ceiling", || {
            let sections = self.sections();
            let free = !sections.is_empty() && sections.iter().all(|section| section.ceiling.is_none());
            free.then_some(())
        });
    }

    /// Asserts that downloads get these shares from now on, in bits per second: the payload of all downloads is at
    /// least 80 % of the rate, and Jain's index of the shares is at least 0.95.
    pub fn assert_shares(&self, downloads: &[&Download], shares: &[f64], bytes: u64) {
        self.assert_fair(downloads, shares, bytes, |got| got.jain(shares) >= 0.95);
    }

    /// Like `assert_shares`, with the criterion `is_fair`. The run transfers at least `bytes` bytes. Pacing limits a
    /// rate only from above: on a busy machine a share is lower for a while, so the run continues until the average
    /// since its beginning meets the criterion. The sections must never send more than the rate.
    pub fn assert_fair(&self, downloads: &[&Download], shares: &[f64], bytes: u64, is_fair: impl Fn(&Sample) -> bool) {
        wait_begun(downloads);
        // The clock starts before the first and is read after the last look at the sections.
        let (run, sections) = (Run::begin(downloads), self.sections());
        let all: f64 = shares.iter().sum();
        for part in 5.. {
            let got = run.wait_for_bytes(bytes / 5 * part);
            let sent = sent_since(&sections, &self.sections());
            // A ceiling is computed from the bytes of two samples of 0.1 s each, so it may be 0.2 s late.
            let most = all * (run.begun.elapsed().as_secs_f64() + 0.2);
            assert!(sent * 8.0 <= most, "{sent} bytes sent, more than {all} bit/s allow: {got:?}");
            if got.rate() >= 0.80 * all && is_fair(&got) {
                return;
            }
            assert!(run.begun.elapsed() < TEST_TIMEOUT, "shares {shares:?} of {all} bit/s not reached: {got:?}");
        }
    }
}

/// Bytes on the wire, headers included, that these sections have sent between `before` and `after`.
fn sent_since(before: &[Section], after: &[Section]) -> f64 {
    let of = |section: &Section| {
        let known = before.iter().find(|known| known.ports == section.ports).map_or(0, |known| known.sent);
        (section.sent - known) as f64 * section.packet() as f64 / section.segment as f64
    };
    after.iter().map(of).sum()
}

/// The bytes of downloads within a span.
#[derive(Debug)]
pub struct Sample {
    pub bytes: Vec<u64>,
    pub span: Duration,
}

impl Sample {
    /// The rate of all downloads together, in bits per second.
    pub fn rate(&self) -> f64 {
        self.bytes.iter().sum::<u64>() as f64 * 8.0 / self.span.as_secs_f64()
    }

    /// Jain's fairness index of the bytes of the downloads, each divided by its weight.
    fn jain(&self, weights: &[f64]) -> f64 {
        let each: Vec<f64> = self.bytes.iter().zip(weights).map(|(bytes, weight)| *bytes as f64 / weight).collect();
        let squares: f64 = each.iter().map(|x| x * x).sum();
        each.iter().sum::<f64>().powi(2) / (each.len() as f64 * squares)
    }
}

/// Waits until all downloads have begun.
pub fn wait_begun(downloads: &[&Download]) {
    eventually("the start of all downloads", || downloads.iter().all(|one| one.bytes() > BEGUN).then_some(()));
}

/// Downloads, measured from the beginning of the run.
pub struct Run<'a> {
    downloads: &'a [&'a Download],
    before: Vec<u64>,
    begun: Instant,
}

impl<'a> Run<'a> {
    pub fn begin(downloads: &'a [&'a Download]) -> Self {
        let before = downloads.iter().map(|one| one.bytes()).collect();
        Self { downloads, before, begun: Instant::now() }
    }

    /// Waits until the downloads together have received this number of bytes since the beginning of the run.
    pub fn wait_for_bytes(&self, bytes: u64) -> Sample {
        eventually(&format!("{bytes} bytes of the downloads"), || {
            let each = self.downloads.iter().zip(&self.before).map(|(one, before)| one.bytes() - before);
            let got = Sample { bytes: each.collect(), span: self.begun.elapsed() };
            (got.bytes.iter().sum::<u64>() >= bytes).then_some(got)
        })
    }
}

/// Measures the downloads until they together have received this number of bytes more.
pub fn measure(downloads: &[&Download], bytes: u64) -> Sample {
    wait_begun(downloads);
    Run::begin(downloads).wait_for_bytes(bytes)
}
