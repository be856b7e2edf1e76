//! `ssh -L`: a forwarder of one port, with a server of its own at the far end, and keys made for the run.

use std::net::SocketAddrV4;
use std::path::Path;
use std::process::Command;

use crate::program::service::{Launch, Service};
use crate::program::tunnel::Ends;
use crate::program::{About, finish, in_own_run};

/// What to install for the client.
pub const ABOUT: About = About { name: "ssh", package: "openssh-client", executable: "ssh", version: &["-V"] };
/// What to install for the server.
pub const SERVER: About = About { name: "sshd", package: "openssh-server", executable: "sshd", version: &["-V"] };
const KEYGEN: About =
    About { name: "ssh-keygen", package: "openssh-client", executable: "ssh-keygen", version: &["-?"] };

/// The port clients connect to.
pub const PORT: u16 = 8000;
/// The port of the server between the two.
const SERVICE: u16 = 22;

/// Starts the server at the right end and the client at the left one, which forwards to `server`.
///
/// # Errors
/// One of them is not installed, or does not start.
pub fn start(ends: &Ends<'_>, server: SocketAddrV4) -> anyhow::Result<Vec<Service>> {
    let file = |name: &str| ends.folder.join(name).display().to_string();
    let (host, user) = (file("ssh-host"), file("ssh-user"));
    make_key(&host)?;
    make_key(&user)?;
    let known = format!("[{}]:{SERVICE} {}", ends.right.outer, std::fs::read_to_string(format!("{host}.pub"))?);
    std::fs::write(
        file("ssh-known"),
        known.replace(&format!("[{}]:22", ends.right.outer), &ends.right.outer.to_string()),
    )?;
    std::fs::write(file("sshd.conf"), configuration(&host, &format!("{user}.pub")))?;
    let arguments = ["-D", "-e", "-f", &file("sshd.conf")].map(str::to_owned).into();
    // It wants an empty /run/sshd, which only its own service makes.
    let (executable, arguments) = in_own_run(ends.folder, "/run/sshd", &SERVER.find()?, arguments);
    let launch = Launch { name: "sshd".into(), executable, arguments, port: Some(SERVICE) };
    let listening = Service::start(ends.right.host, launch, ends.folder)?;
    let arguments = client(ends, &user, server);
    let launch = Launch { name: "ssh".into(), executable: ABOUT.find()?, arguments, port: Some(PORT) };
    Ok(vec![listening, Service::start(ends.left.host, launch, ends.folder)?])
}

fn make_key(file: &str) -> anyhow::Result<()> {
    finish(Command::new(KEYGEN.find()?).args(["-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", file]))
}

/// Nothing of the host's: neither its keys, nor its users' settings, nor PAM.
fn configuration(host_key: &str, user_key: &str) -> String {
    format!(
        "Port {SERVICE}\nHostKey {host_key}\nAuthorizedKeysFile {user_key}\nStrictModes no\nUsePAM no\nPidFile none\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\nAllowTcpForwarding local\nUseDNS no\n"
    )
}

fn client(ends: &Ends<'_>, key: &str, server: SocketAddrV4) -> Vec<String> {
    let known = ends.folder.join("ssh-known");
    let forward = format!("0.0.0.0:{PORT}:{server}");
    let mut all: Vec<String> = ["-F", "none", "-N", "-i", key, "-L", &forward].map(str::to_owned).into();
    for option in options(&known) {
        all.extend(["-o".to_owned(), option]);
    }
    all.push(format!("root@{}", ends.right.outer));
    all
}

fn options(known: &Path) -> [String; 5] {
    [
        "IdentitiesOnly=yes".into(),
        "BatchMode=yes".into(),
        "StrictHostKeyChecking=yes".into(),
        "ExitOnForwardFailure=yes".into(),
        format!("UserKnownHostsFile={}", known.display()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_the_hosts() {
        let text = configuration("/run/host", "/run/user.pub");
        assert!(text.contains("HostKey /run/host\nAuthorizedKeysFile /run/user.pub\n"), "{text}");
        assert!(text.contains("UsePAM no") && text.contains("PidFile none"), "{text}");
        assert!(options(Path::new("/run/known")).contains(&"UserKnownHostsFile=/run/known".to_owned()));
    }
}
