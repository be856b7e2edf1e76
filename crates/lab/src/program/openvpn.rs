//! OpenVPN over TCP between two hosts, in a common setup: TLS, AES-256-GCM, and default queues and sizes.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

use crate::program::service::{LaunchSpec, Service};
use crate::program::tunnel::{DEVICE, StartedTunnel, TunnelEnd, TunnelEnds};
use crate::program::{ProgramInfo, run_to_completion};

/// Program and package of OpenVPN.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "openvpn", package: "openvpn", executable: "openvpn", version_arguments: &["--version"] };

/// Program and package that generate the certificates.
pub const OPENSSL: ProgramInfo =
    ProgramInfo { name: "openssl", package: "openssl", executable: "openssl", version_arguments: &["version"] };

/// Port of OpenVPN, registered with IANA.
const PORT: u16 = 1194;

/// TLS identity of an end. The ends verify each other's certificate by fingerprint, without an authority.
struct TlsIdentity {
    certificate: String,
    key: String,
    fingerprint: String,
}

impl TlsIdentity {
    fn generate(name: &str, folder: &Path) -> anyhow::Result<Self> {
        let openssl = OPENSSL.find()?;
        let file = |ending: &str| folder.join(format!("openvpn-{name}.{ending}")).display().to_string();
        let (certificate, key) = (file("crt"), file("key"));
        let mut request = Command::new(&openssl);
        request.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        request.args(["-days", "2", "-subj", &format!("/CN={name}"), "-keyout", &key, "-out", &certificate]);
        run_to_completion(&mut request)?;
        let mut print = Command::new(&openssl);
        let printed = print.args(["x509", "-noout", "-fingerprint", "-sha256", "-in", &certificate]).output()?;
        let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
        let (_, fingerprint) = printed.trim().split_once('=').context("openssl prints no fingerprint")?;
        Ok(Self { certificate, key, fingerprint: fingerprint.to_owned() })
    }
}

/// Generates certificates, and starts both ends.
///
/// # Errors
/// OpenVPN or openssl is not installed, or does not start.
pub fn start(ends: &TunnelEnds<'_>) -> anyhow::Result<StartedTunnel> {
    let executable = PROGRAM.find()?;
    let identities = [TlsIdentity::generate("left", ends.folder)?, TlsIdentity::generate("right", ends.folder)?];
    let [left, right] = &identities;
    let begin = |end: TunnelEnd<'_>, text: String| {
        let file = ends.folder.join(format!("openvpn-{}.conf", end.host.name()));
        std::fs::write(&file, text)?;
        let arguments = vec!["--config".into(), file.display().to_string()];
        // No readiness probe: OpenVPN treats the first connection as that of its peer.
        let launch = LaunchSpec { name: "openvpn".into(), executable: executable.clone(), arguments, port: None };
        Service::start(end.host, launch, ends.folder)
    };
    let listening = begin(ends.right, configuration(None, ends.right.outer_address, right, left))?;
    let dialling =
        begin(ends.left, configuration(Some(ends.right.outer_address), ends.left.outer_address, left, right))?;
    Ok(StartedTunnel { services: vec![listening, dialling], devices: [DEVICE; 2] })
}

/// Returns the configuration of one end, which dials `remote` or listens.
fn configuration(remote: Option<Ipv4Addr>, local: Ipv4Addr, own: &TlsIdentity, peer: &TlsIdentity) -> String {
    let role = remote.map_or_else(
        || format!("proto tcp-server\nlocal {local}\ntls-server\ndh none\n"),
        |remote| format!("proto tcp-client\nremote {remote}\nconnect-retry 1\ntls-client\n"),
    );
    let TlsIdentity { certificate, key, .. } = own;
    format!(
        "dev {DEVICE}\ndev-type tun\npersist-tun\nport {PORT}\n{role}cert {certificate}\nkey {key}\n\
         peer-fingerprint {}\ndata-ciphers AES-256-GCM\n",
        peer.fingerprint
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_near_end_dials() {
        let identity = |name: &str| TlsIdentity {
            certificate: format!("/run/{name}.crt"),
            key: format!("/run/{name}.key"),
            fingerprint: name.to_uppercase(),
        };
        let (left, right) = (identity("left"), identity("right"));
        let [near, far] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
        let text = configuration(Some(far), near, &left, &right);
        assert!(text.contains("proto tcp-client\nremote 10.0.0.2\n"), "{text}");
        assert!(text.contains("key /run/left.key\npeer-fingerprint RIGHT\n"), "{text}");
        let text = configuration(None, far, &right, &left);
        assert!(text.contains("proto tcp-server\nlocal 10.0.0.2\n") && !text.contains("remote"), "{text}");
    }
}
