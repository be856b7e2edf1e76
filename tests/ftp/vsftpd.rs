//! A vsftpd process of the test, and curl with the relay as its proxy.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::harness::*;

const VSFTPD: &str = "/usr/sbin/vsftpd";

/// A running vsftpd with a readable folder `pub/` and a writable folder `incoming/`.
pub struct Vsftpd {
    _child: KillOnDrop,
    pub address: SocketAddr,
    pub folder: Folder,
}

impl Vsftpd {
    /// Starts the server. Returns `None` and prints a message if the test does not run as root or vsftpd is not
    /// installed.
    pub fn start() -> Option<Self> {
        let root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        if !root || !std::path::Path::new(VSFTPD).exists() {
            skipped(format_args!("needs root and {VSFTPD} (apt-get install vsftpd)"));
            return None;
        }
        let folder = Folder::new();
        for (name, mode) in [("", 0o755), ("site", 0o755), ("site/pub", 0o755), ("site/incoming", 0o777)] {
            let path = folder.0.join(name);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        folder.write("banned", "wrong@password\n");
        // vsftpd does not support port 0, and another process may bind the free port first: the greeting must have the
        // banner of this test.
        let (child, address) = eventually("a running vsftpd", || Self::try_start(&folder));
        Some(Self { _child: child, address, folder })
    }

    fn try_start(folder: &Folder) -> Option<(KillOnDrop, SocketAddr)> {
        let address = unused_address();
        let (root, name) = (folder.0.display(), folder.0.file_name().unwrap().to_str().unwrap());
        let text = format!(
            "listen=YES\nlisten_ipv6=NO\nlisten_address=127.0.0.1\nlisten_port={}\nbackground=NO\nftpd_banner={name}\n\
             anonymous_enable=YES\nlocal_enable=NO\nanon_root={root}/site\nwrite_enable=YES\nanon_upload_enable=YES\n\
             anon_world_readable_only=NO\nanon_umask=022\ndelete_failed_uploads=YES\ndeny_email_enable=YES\n\
             banned_email_file={root}/banned\nsecure_chroot_dir={root}/site/pub\nxferlog_enable=NO\nseccomp_sandbox=NO\n",
            address.port()
        );
        let file = folder.write("vsftpd.conf", text);
        let mut child = KillOnDrop(Command::new(VSFTPD).arg(file).stdin(Stdio::null()).spawn().unwrap());
        let ours = eventually("the greeting of the FTP server", || match TcpStream::connect(address) {
            Ok(stream) => {
                let mut greeting = String::new();
                let _ = BufReader::new(stream).read_line(&mut greeting);
                Some(greeting.contains(name))
            }
            Err(_) => child.0.try_wait().unwrap().map(|_| false),
        });
        ours.then_some((child, address))
    }

    pub fn url(&self, path: &str) -> String {
        format!("ftp://{}{path}", self.address)
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.0.join("site").join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).unwrap();
    }
}

/// The result of one curl process.
#[derive(Debug)]
pub struct CurlResult {
    pub status: u16,
    pub body: Vec<u8>,
    pub head: String,
    pub stderr: String,
    pub exit: i32,
}

pub fn curl(arguments: &[&str]) -> CurlResult {
    let folder = Folder::new();
    let head = folder.0.join("head");
    let mut command = Command::new("curl");
    for name in ["http_proxy", "ftp_proxy", "all_proxy", "no_proxy", "ALL_PROXY", "FTP_PROXY", "NO_PROXY"] {
        command.env_remove(name);
    }
    command.args(["-q", "-sS", "--max-time", "20", "-w", "%{stderr}%{http_code}", "-D"]).arg(&head).args(arguments);
    let output = command.stdin(Stdio::null()).output().expect("curl runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = &stderr[stderr.len().saturating_sub(3)..];
    CurlResult {
        status: code.parse().unwrap_or_else(|_| panic!("output of curl: {stderr}")),
        body: output.stdout,
        head: std::fs::read_to_string(head).unwrap_or_default(),
        exit: output.status.code().unwrap(),
        stderr,
    }
}

/// Runs curl with the relay as the HTTP proxy.
pub fn get(relay: &Relay, url: &str, more: &[&str]) -> CurlResult {
    let proxy = format!("http://{}", relay.address());
    curl(&[&["-x", &proxy, url], more].concat())
}

pub fn http_relay() -> Relay {
    Relay::listen(&["http://127.0.0.1:0"])
}

pub fn request_event(relay: &mut Relay) -> Value {
    relay.next(|event| event["event"] == "request")
}

/// Sends `request` unchanged. Returns the connection, from which the response can be read.
pub fn send_request(relay: &Relay, request: &str) -> TcpStream {
    let mut client = relay.connect();
    client.write_all(request.as_bytes()).unwrap();
    client
}
