//! VTun over TCP between two hosts: a TUN device at each, encrypted.

use crate::program::service::{LaunchSpec, Service};
use crate::program::tunnel::{DEVICE, StartedTunnel, TunnelEnd, TunnelEnds};
use crate::program::{ProgramInfo, with_private_run_dir, write_secret};

/// What to install for it. It has no way to print its version but as part of its usage.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "vtun", package: "vtun", executable: "vtund", version_arguments: &["-h"] };

/// Its port, registered with IANA.
const PORT: u16 = 5000;
/// The name of the session.
const SESSION: &str = "lab";

/// Starts both ends.
///
/// # Errors
/// It is not installed, or does not start.
pub fn start(ends: &TunnelEnds<'_>) -> anyhow::Result<StartedTunnel> {
    let executable = PROGRAM.find()?;
    let file = ends.folder.join("vtund.conf");
    write_secret(&file, &configuration())?;
    let begin = |end: TunnelEnd<'_>, arguments: &[&str], port: Option<u16>| {
        let file = file.display().to_string();
        let fixed = ["-n", "-f", &file, "-P", &PORT.to_string()].map(str::to_owned);
        let all = fixed.into_iter().chain(arguments.iter().map(|&argument| argument.to_owned())).collect();
        // It leaves its number and statistics where the host's own would.
        let (executable, arguments) = with_private_run_dir(ends.folder, "/run/lock/vtund", &executable, all);
        Service::start(end.host, LaunchSpec { name: "vtund".into(), executable, arguments, port }, ends.folder)
    };
    // The one that dials ends if nobody answers.
    let listening = begin(ends.right, &["-s"], Some(PORT))?;
    let dialling = begin(ends.left, &[SESSION, &ends.right.outer_address.to_string()], None)?;
    Ok(StartedTunnel { services: vec![listening, dialling], devices: [DEVICE; 2] })
}

/// Both ends read the same. `multi`: it looks for no file of a session before. Its own default cipher is Blowfish, which
/// OpenSSL 3 has put away, and without which it is killed by signal 11.
fn configuration() -> String {
    format!(
        "options {{\n  port {PORT};\n}}\n{SESSION} {{\n  passwd only-in-this-lab;\n  type tun;\n  device {DEVICE};\n  \
         proto tcp;\n  encrypt aes128cbc;\n  compress no;\n  keepalive yes;\n  multi yes;\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_cross_by_tcp_and_encrypted() {
        let text = configuration();
        assert!(
            ["type tun;", "proto tcp;", "encrypt aes128cbc;"].iter().all(|setting| text.contains(setting)),
            "{text}"
        );
    }
}
