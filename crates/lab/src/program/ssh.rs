//! `ssh -L` as a forwarder of one port, with its own sshd at the far end and keys generated for the run.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::program::service::{LaunchSpec, Service};
use crate::program::tunnel::TunnelEnds;
use crate::program::{ProgramInfo, run_to_completion, with_private_run_dir};

/// Program and package of the client.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "ssh", package: "openssh-client", executable: "ssh", version_arguments: &["-V"] };
/// Program and package of the server.
pub const SSHD: ProgramInfo =
    ProgramInfo { name: "sshd", package: "openssh-server", executable: "sshd", version_arguments: &["-V"] };
const SSH_KEYGEN: ProgramInfo =
    ProgramInfo { name: "ssh-keygen", package: "openssh-client", executable: "ssh-keygen", version_arguments: &["-?"] };

/// Port to which clients connect.
pub const PORT: u16 = 8000;
/// Port of sshd at the far end.
const SSHD_PORT: u16 = 22;

/// Starts sshd at the right end, and at the left end the client, which forwards to `server`.
///
/// # Errors
/// A program is not installed, or does not start.
pub fn start(ends: &TunnelEnds<'_>, server: SocketAddr) -> anyhow::Result<Vec<Service>> {
    let file = |name: &str| ends.folder.join(name).display().to_string();
    let (host, user) = (file("ssh-host"), file("ssh-user"));
    make_key(&host)?;
    make_key(&user)?;
    let known =
        format!("[{}]:{SSHD_PORT} {}", ends.right.outer_address, std::fs::read_to_string(format!("{host}.pub"))?);
    std::fs::write(
        file("ssh-known"),
        known.replace(&format!("[{}]:22", ends.right.outer_address), &ends.right.outer_address.to_string()),
    )?;
    std::fs::write(file("sshd.conf"), configuration(&host, &format!("{user}.pub")))?;
    let arguments = ["-D", "-e", "-f", &file("sshd.conf")].map(str::to_owned).into();
    // sshd requires an empty /run/sshd, which only its systemd service creates.
    let (executable, arguments) = with_private_run_dir(ends.folder, "/run/sshd", &SSHD.find()?, arguments);
    let launch = LaunchSpec { name: "sshd".into(), executable, arguments, port: Some(SSHD_PORT) };
    let listening = Service::start(ends.right.host, launch, ends.folder)?;
    let arguments = client_arguments(ends, &user, server);
    let launch = LaunchSpec { name: "ssh".into(), executable: PROGRAM.find()?, arguments, port: Some(PORT) };
    Ok(vec![listening, Service::start(ends.left.host, launch, ends.folder)?])
}

fn make_key(file: &str) -> anyhow::Result<()> {
    run_to_completion(Command::new(SSH_KEYGEN.find()?).args(["-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", file]))
}

/// Returns an sshd configuration that uses nothing of the host: no host keys, user settings or PAM.
fn configuration(host_key: &str, user_key: &str) -> String {
    format!(
        "Port {SSHD_PORT}\nHostKey {host_key}\nAuthorizedKeysFile {user_key}\nStrictModes no\nUsePAM no\nPidFile none\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\nAllowTcpForwarding local\nUseDNS no\n"
    )
}

fn client_arguments(ends: &TunnelEnds<'_>, key: &str, server: SocketAddr) -> Vec<String> {
    let known = ends.folder.join("ssh-known");
    let forward = format!("0.0.0.0:{PORT}:{server}");
    let mut all: Vec<String> = ["-F", "none", "-N", "-i", key, "-L", &forward].map(str::to_owned).into();
    for option in client_options(&known) {
        all.extend(["-o".to_owned(), option]);
    }
    all.push(format!("root@{}", ends.right.outer_address));
    all
}

fn client_options(known: &Path) -> [String; 5] {
    [
        "IdentitiesOnly=yes".into(),
        "BatchMode=yes".into(),
        "StrictHostKeyChecking=yes".into(),
        "ExitOnForwardFailure=yes".into(),
        format!("UserKnownHostsFile={}", known.display()),
    ]
}
