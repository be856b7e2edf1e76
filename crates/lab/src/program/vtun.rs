//! VTun over TCP between two hosts, with a TUN device on each, encrypted.

use crate::program::service::{LaunchSpec, Service};
use crate::program::tunnel::{DEVICE, StartedTunnel, TunnelEnd, TunnelEnds};
use crate::program::{ProgramInfo, with_private_run_dir, write_secret};

/// Program and package of VTun. Its version is only in its usage message.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "vtun", package: "vtun", executable: "vtund", version_arguments: &["-h"] };

/// Port of VTun, registered with IANA.
const PORT: u16 = 5000;
/// Name of the VTun session.
const SESSION: &str = "lab";

/// Starts the listening end, then the dialling end.
///
/// # Errors
/// VTun is not installed, or does not start.
pub fn start(ends: &TunnelEnds<'_>) -> anyhow::Result<StartedTunnel> {
    let executable = PROGRAM.find()?;
    let file = ends.folder.join("vtund.conf");
    write_secret(&file, &configuration())?;
    let begin = |end: TunnelEnd<'_>, arguments: &[&str], port: Option<u16>| {
        let file = file.display().to_string();
        let fixed = ["-n", "-f", &file, "-P", &PORT.to_string()].map(str::to_owned);
        let all = fixed.into_iter().chain(arguments.iter().map(|&argument| argument.to_owned())).collect();
        // vtund writes its pid and statistics to fixed system paths.
        let (executable, arguments) = with_private_run_dir(ends.folder, "/run/lock/vtund", &executable, all);
        Service::start(end.host, LaunchSpec { name: "vtund".into(), executable, arguments, port }, ends.folder)
    };
    // The dialling end exits if the listening end does not answer.
    let listening = begin(ends.right, &["-s"], Some(PORT))?;
    let dialling = begin(ends.left, &[SESSION, &ends.right.outer_address.to_string()], None)?;
    Ok(StartedTunnel { services: vec![listening, dialling], devices: [DEVICE; 2] })
}

/// Returns the configuration, which both ends share. `multi` disables the check for the file of an earlier session. The
/// default cipher is Blowfish, which OpenSSL 3 moved to its legacy provider; without this provider, vtund crashes with
/// signal 11.
fn configuration() -> String {
    format!(
        "options {{\n  port {PORT};\n}}\n{SESSION} {{\n  passwd only-in-this-lab;\n  type tun;\n  device {DEVICE};\n  \
         proto tcp;\n  encrypt aes128cbc;\n  compress no;\n  keepalive yes;\n  multi yes;\n}}\n"
    )
}
