//! VTun over TCP between two hosts: a TUN device at each, encrypted.

use crate::program::service::{Launch, Service};
use crate::program::tunnel::{DEVICE, End, Ends, Opened};
use crate::program::{About, in_own_run, write_secret};

/// What to install for it. It has no way to print its version but as part of its usage.
pub const ABOUT: About = About { name: "vtun", package: "vtun", executable: "vtund", version: &["-h"] };

/// Its port, registered with IANA.
const PORT: u16 = 5000;
/// The name of the session.
const SESSION: &str = "lab";

/// Starts both ends.
///
/// # Errors
/// It is not installed, or does not start.
pub fn start(ends: &Ends<'_>) -> anyhow::Result<Opened> {
    let executable = ABOUT.find()?;
    let file = ends.folder.join("vtund.conf");
    write_secret(&file, &configuration())?;
    let begin = |end: End<'_>, arguments: &[&str], port: Option<u16>| {
        let file = file.display().to_string();
        let fixed = ["-n", "-f", &file, "-P", &PORT.to_string()].map(str::to_owned);
        let all = fixed.into_iter().chain(arguments.iter().map(|&argument| argument.to_owned())).collect();
        // It leaves its number and statistics where the host's own would.
        let (executable, arguments) = in_own_run(ends.folder, "/run/lock/vtund", &executable, all);
        Service::start(end.host, Launch { name: "vtund".into(), executable, arguments, port }, ends.folder)
    };
    // The one that dials ends if nobody answers.
    let listening = begin(ends.right, &["-s"], Some(PORT))?;
    let dialling = begin(ends.left, &[SESSION, &ends.right.outer.to_string()], None)?;
    Ok(Opened { services: vec![listening, dialling], devices: [DEVICE; 2] })
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
