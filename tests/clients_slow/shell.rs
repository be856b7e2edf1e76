//! ssh through `nc`, to an sshd started by the test: 10 MB in each direction.

use std::fs::File;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use super::curl::closed;
use super::left_out;
use super::programs::{Daemon, client, program, succeeds};
use crate::harness::{Folder, Relay, nobody, pattern};

/// An sshd with its own keys, settings and authorized users.
struct Sshd {
    address: SocketAddr,
    folder: Folder,
    _daemon: Daemon,
}

impl Sshd {
    fn start() -> Self {
        let (address, folder) = (nobody(), Folder::new());
        for name in ["host", "user"] {
            let mut keygen = program("ssh-keygen", &folder);
            succeeds(keygen.current_dir(&folder.0).args(["-q", "-t", "ed25519", "-N", "", "-f", name]));
        }
        let place = folder.0.display();
        let text = format!(
            "ListenAddress {address}\nHostKey {place}/host\nAuthorizedKeysFile {place}/user.pub\nStrictModes no\n\
             PidFile none\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nLogLevel VERBOSE\n"
        );
        let path = folder.write("sshd.conf", text);
        // The folder for sshd's privilege separation; Debian creates it when the service starts.
        let _ = std::fs::create_dir_all("/run/sshd");
        let mut sshd = program("sshd", &folder);
        let daemon = Daemon::start(sshd.args(["-D", "-e", "-f"]).arg(path), &folder.0, address);
        Self { address, folder, _daemon: daemon }
    }

    /// `ssh -o ProxyCommand=... COMMAND`, without the user's settings.
    fn command(&self, proxy_command: &str, command: &str) -> Command {
        let mut ssh = client("ssh", &self.folder);
        let user = succeeds(Command::new("id").arg("-un"));
        let user = String::from_utf8(user).expect("a name");
        ssh.current_dir(&self.folder.0).args(["-F", "/dev/null", "-i", "user", "-l", user.trim()]);
        for option in ["IdentitiesOnly=yes", "BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=known"] {
            ssh.args(["-o", option]);
        }
        ssh.arg("-o").arg(format!("ProxyCommand={proxy_command}"));
        ssh.args(["-p", &self.address.port().to_string(), "127.0.0.1", command]);
        ssh
    }
}

#[test]
fn ssh_through_nc() {
    if left_out(&["ssh", "sshd", "ssh-keygen", "nc"]) {
        return;
    }
    let sshd = Sshd::start();
    let bytes = pattern(10_000_000);
    let file = sshd.folder.write("bytes", &bytes);
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    for protocol in ["5", "connect", "4"] {
        let nc = format!("nc -X {protocol} -x {} %h %p", relay.address());
        let out = succeeds(&mut sshd.command(&nc, &format!("cat {}", file.display())));
        assert!(out == bytes, "nc -X {protocol}: {} bytes", out.len());
        let event = closed(&mut relay, "finished", &sshd.address.to_string(), "direct");
        assert!(event["bytes_down"].as_u64() > Some(10_000_000), "{event}");

        let stdin = Stdio::from(File::open(&file).expect("the file is there"));
        let out = succeeds(sshd.command(&nc, "cat").stdin(stdin));
        assert!(out == bytes, "nc -X {protocol}, both ways: {} bytes", out.len());
        let event = closed(&mut relay, "finished", &sshd.address.to_string(), "direct");
        assert!(event["bytes_up"].as_u64() > Some(10_000_000), "{event}");
        assert!(event["bytes_spliced"].as_u64() > Some(15_000_000), "{event}");
    }
}
