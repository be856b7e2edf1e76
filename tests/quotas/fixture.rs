//! A relay with users and limits, a server, and transfers by curl.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::*;
use crate::programs::{ProgramOutput, client, program, run_to_end};

/// Hash of the password "baton" of `alice` and `bob`: crypt(3), bcrypt at cost 4.
const HASH: &str = "$2b$04$viMzP/EMi/LpemU8Fzw1qeBk.G4z/ZJbDd71mBZVhESZ9/hS5tBz2";

/// A listener that requires a user of the users file.
pub const LISTENER: &str = "[[listener]]\nbind = \"127.0.0.1:0\"\nusers = \"USERS\"\n";

/// A relay, its files, and a server behind it.
pub struct Fixture {
    pub relay: Relay,
    pub server: SocketAddr,
    pub folder: Folder,
}

impl Fixture {
    /// Starts a relay of two threads. `USERS` and `USAGE` in `text` are replaced with the paths of the users file and
    /// the usage file.
    pub fn new(text: &str) -> Self {
        let folder = Folder::new();
        folder.write_with_mode("users", format!("alice:{HASH}\nbob:{HASH}\n"), 0o600);
        let relay = run(&folder, text);
        Self { relay, server: serve(answer), folder }
    }

    /// Kills the relay, and starts it again with the same files.
    pub fn kill_and_start(self, text: &str) -> Self {
        let Self { relay, server, folder } = self;
        // The drop of the relay sends SIGKILL.
        drop(relay);
        Self { relay: run(&folder, text), server, folder }
    }

    /// Reloads the relay with this configuration.
    pub fn reload(&mut self, text: &str) {
        write(&self.folder, text);
        self.relay.signal("HUP");
        self.relay.next(|event| event["event"] == "reloaded");
    }

    /// Returns a curl command with these arguments that uses listener `index` as a proxy of this kind, such as
    /// `socks5h`.
    pub fn curl(&self, user: &str, kind: &str, index: usize, arguments: &[&str]) -> Command {
        let mut curl = client("curl", &self.folder);
        curl.args(self.proxy(user, kind, index)).args(arguments);
        curl
    }

    fn proxy(&self, user: &str, kind: &str, index: usize) -> [String; 4] {
        let url = format!("{kind}://{user}:baton@{}", self.relay.address_of(index));
        ["--silent".to_owned(), "--show-error".to_owned(), "--proxy".to_owned(), url]
    }

    /// Downloads this number of bytes through SOCKS5 at the first listener.
    pub fn download(&self, user: &str, bytes: u64) -> ProgramOutput {
        run_to_end(&mut self.curl(user, "socks5h", 0, &[&self.url(bytes)]))
    }

    /// Returns the URL of a file with this number of bytes.
    pub fn url(&self, bytes: u64) -> String {
        format!("http://{}/{bytes}", self.server)
    }

    /// Starts an endless download through listener `index`.
    pub fn start_endless(&self, user: &str, index: usize) -> Transfer {
        self.start_download(user, index, u64::MAX)
    }

    /// Starts a download of this number of bytes through listener `index`.
    pub fn start_download(&self, user: &str, index: usize, bytes: u64) -> Transfer {
        self.start(user, index, &["--no-buffer", &self.url(bytes)])
    }

    /// Starts an endless upload through listener `index`.
    pub fn start_upload(&self, user: &str, index: usize) -> Transfer {
        self.start(user, index, &["--upload-file", "-", &self.url(0)])
    }

    fn start(&self, user: &str, index: usize, arguments: &[&str]) -> Transfer {
        let file = self.folder.0.join(format!("got-{user}-{index}"));
        let mut curl = program("curl", &self.folder);
        curl.args(self.proxy(user, "socks5h", index)).arg("--output").arg(&file).args(arguments);
        curl.stdin(File::open("/dev/zero").unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
        Transfer { child: KillOnDrop(curl.spawn().unwrap()), file }
    }

    /// Returns the account of a user or a listener in `/api/sessions`.
    pub fn account(&self, scope: &str, name: &str) -> Value {
        let answer: Value = serde_json::from_str(&self.relay.ask("/api/sessions")).unwrap();
        let accounts = answer["accounts"].as_array().unwrap();
        let found = accounts.iter().find(|account| account["scope"] == scope && account["name"] == name);
        found.cloned().unwrap_or_else(|| panic!("no {scope} {name} in {accounts:?}"))
    }

    /// Returns the used bytes of alice's quota.
    pub fn used(&self) -> u64 {
        self.account("user", "alice")["used_bytes"].as_u64().unwrap()
    }
}

fn write(folder: &Folder, text: &str) -> PathBuf {
    let path = |name| folder.0.join(name).display().to_string();
    let text = text.replace("USERS", &path("users")).replace("USAGE", &path("usage.db"));
    folder.write("ekiden.toml", format!("version = 1\nthreads = 2\n{text}"))
}

fn run(folder: &Folder, text: &str) -> Relay {
    let file = write(folder, text);
    Relay::run(&["-c", file.to_str().unwrap()], text.matches("[[listener]]").count())
}

/// Returns the bytes of a session in both directions, from its closing event.
pub fn transferred_bytes(closed: &Value) -> u64 {
    closed["bytes_up"].as_u64().unwrap() + closed["bytes_down"].as_u64().unwrap()
}

/// Answers a GET with as many bytes as the path states, or reads the body of a PUT to its end.
fn answer(mut stream: TcpStream) {
    let head = read_head(&mut stream);
    let path = head.split(' ').nth(1).unwrap().trim_start_matches('/');
    let mut left: u64 = path.parse().unwrap();
    if head.starts_with("PUT") {
        let mut bytes = vec![0; 65_536];
        let mut read = stream.write(b"HTTP/1.1 100 Continue\r\n\r\n");
        while let Ok(1..) = read {
            read = stream.read(&mut bytes);
        }
        return;
    }
    let length = if left == u64::MAX { String::new() } else { format!("Content-Length: {left}\r\n") };
    let mut written = write!(stream, "HTTP/1.1 200 OK\r\n{length}Connection: close\r\n\r\n");
    let piece = vec![7; 65_536];
    while written.is_ok() && left > 0 {
        let count = usize::try_from(left).map_or(piece.len(), |left| left.min(piece.len()));
        written = stream.write_all(&piece[..count]);
        left -= count as u64;
    }
}

/// A curl process with a download or an upload, which is killed when the value is dropped.
pub struct Transfer {
    child: KillOnDrop,
    file: PathBuf,
}

impl Transfer {
    /// Returns the number of bytes that curl has written to the file.
    pub fn bytes(&self) -> u64 {
        std::fs::metadata(&self.file).map_or(0, |metadata| metadata.len())
    }

    /// Waits until curl exits. Returns the exit code.
    pub fn exit_code(&mut self) -> i32 {
        self.child.0.wait().unwrap().code().unwrap()
    }
}
