//! SoftEther VPN between two hosts. Each server has a virtual hub with a bridge to a TAP device; one hub dials the
//! other (a cascade connection). The connection uses only TCP, encrypted as by default.
//!
//! Without the management tools, the configuration is the file `vpn_server.config`. The server reads and writes files
//! in fixed system folders, so each server gets private copies of these folders.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use ekiden_sys::signal;

use crate::program::ProgramInfo;
use crate::program::service::{LaunchSpec, Service};
use crate::program::tunnel::{StartedTunnel, TunnelEnd, TunnelEnds};
use crate::topology::network::HostHandle;

/// Program and package of SoftEther VPN. The executable cannot print its version.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "softether", package: "softether-vpnserver", executable: "vpnserver", version_arguments: &[] };

/// Default port of SoftEther that no other program uses.
const PORT: u16 = 5555;
/// Number of TCP connections between the hubs, as written by CascadeCreate of `vpncmd`. SoftEther adds one per second.
const CONNECTIONS: usize = 8;
/// Timeout until all connections are established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Name of the hubs, of the user, and of the device after SoftEther's prefix `tap_`.
const NAME: &str = "lab";
const DEVICE: &str = "tap_lab";

/// Mounts the current folder over the system folders for configuration, logs, locks and cache, in a private mount
/// namespace, and executes the server. (`execsvc` is the command that `start` runs in the background.)
const ISOLATION_SCRIPT: &str = r#"cd "$1" && for place in /var/lib /var/log /run /tmp; do mount -c --bind . "$place" || exit; done
cd / && exec "$2" execsvc"#;

/// Starts both ends, and waits until all connections between them are established.
///
/// # Errors
/// SoftEther is not installed, does not start, or the ends do not connect within 60 s.
pub fn start(ends: &TunnelEnds<'_>) -> anyhow::Result<StartedTunnel> {
    let executable = PROGRAM.find()?;
    let begin = |end: TunnelEnd<'_>, text: &str| {
        let home = create_server_folder(ends.folder, end.host.name(), text)?;
        let words = ["sh".into(), home.display().to_string(), executable.display().to_string()];
        let shell = ["--mount", "--propagation", "private", "sh", "-c", ISOLATION_SCRIPT].map(str::to_owned);
        let arguments = shell.into_iter().chain(words).collect();
        let launch =
            LaunchSpec { name: PROGRAM.name.into(), executable: "unshare".into(), arguments, port: Some(PORT) };
        Service::start(end.host, launch, ends.folder)
    };
    // Start the listening end first: a failed dial is retried only after 10 s, regardless of the configuration.
    let listening = begin(ends.right, &configuration(&listening_hub()))?;
    let dialling = begin(ends.left, &configuration(&dialling_hub(ends.right.outer_address)))?;
    let mut services = vec![listening, dialling];
    wait_until_connected(ends.right.host, &mut services)?;
    Ok(StartedTunnel { services, devices: [DEVICE; 2] })
}

/// Creates a folder for the server on `host`. The server's log is a hard link to the log of the service.
fn create_server_folder(folder: &Path, host: &str, configuration: &str) -> anyhow::Result<PathBuf> {
    let home = folder.join(format!("softether-{host}"));
    let own = home.join("softether");
    fs::create_dir_all(own.join("server_log")).with_context(|| own.display().to_string())?;
    fs::write(own.join("vpn_server.config"), configuration)?;
    let log = folder.join(format!("{}-{host}.log", PROGRAM.name));
    fs::write(&log, "")?;
    fs::hard_link(&log, own.join("server_log/vpn.log")).with_context(|| log.display().to_string())?;
    Ok(home)
}

fn wait_until_connected(listening: &HostHandle, services: &mut [Service]) -> anyhow::Result<()> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    loop {
        let sockets = listening.enter(|| fs::read_to_string("/proc/thread-self/net/tcp"))??;
        let established = established_connections(&sockets);
        if established >= CONNECTIONS {
            return Ok(());
        }
        if let Some(failure) = services.iter_mut().find_map(Service::failure) {
            anyhow::bail!(failure);
        }
        anyhow::ensure!(!signal::is_interrupted(), "interrupted");
        if Instant::now() > deadline {
            let descriptions: Vec<String> = services.iter().map(Service::describe).collect();
            anyhow::bail!(
                "only {established} of {CONNECTIONS} connections are established after {CONNECT_TIMEOUT:?}: {}",
                descriptions.join("; ")
            );
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}

/// Returns the number of established connections to the port in `/proc/net/tcp`: state 01, addresses and ports in
/// hexadecimal (proc_net(5)).
fn established_connections(sockets: &str) -> usize {
    let port = format!(":{PORT:04X}");
    let is_established = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&port)) && words.nth(1) == Some("01")
    };
    sockets.lines().filter(is_established).count()
}

/// Returns the configuration of a server with a hub bridged to a device; `hub` adds settings of the hub. Features that
/// contact the internet or disturb the laboratory are off: without these settings the server raises the priority of its
/// process group and dumps core.
fn configuration(hub: &str) -> String {
    let listener = format!("bool Enabled true\nuint Port {PORT}\n");
    let bridge = format!("string DeviceName {NAME}\nstring HubName {NAME}\nbool TapMode true\n");
    let server = "bool DisableCoreDumpOnUnix true\nbool DisableGetHostNameWhenAcceptTcp true\n\
                  bool DisableIPv6Listener true\nbool DisableNatTraversal true\nbool DontBackupConfig true\n\
                  bool NoHighPriorityProcess true\nuint ServerLogSwitchType 0\nbool UseKeepConnect false\n";
    let parts = [
        declaration("DDnsClient", "bool Disabled true\n"),
        declaration("ListenerList", &declaration("Listener0", &listener)),
        declaration("LocalBridgeList", &declaration("LocalBridge0", &bridge)),
        declaration("ServerConfiguration", server),
        declaration("VirtualHUB", &declaration(NAME, &format!("bool Online true\n{hub}"))),
    ];
    declaration("root", &parts.concat())
}

/// Returns a hub with a user without password.
fn listening_hub() -> String {
    let user = declaration(NAME, "uint AuthType 0\n");
    declaration("SecurityAccountDatabase", &declaration("UserList", &user))
}

/// Returns a hub with a connection to the hub at `right`. The suffix `/tcp` of the address disables transports that
/// imitate ICMP and DNS. The policy is required, even if empty: SoftEther skips a connection without it.
fn dialling_hub(right: Ipv4Addr) -> String {
    let options = format!(
        "string AccountName {NAME}\nuint AdditionalConnectionInterval 1\nstring Hostname {right}/tcp\n\
         string HubName {NAME}\nuint MaxConnection {CONNECTIONS}\nbool NoUdpAcceleration true\n\
         uint NumRetry 4294967295\nuint Port {PORT}\nbool RequireBridgeRoutingMode true\nbool UseEncrypt true\n"
    );
    let parts = [
        "bool Online true\n".to_owned(),
        declaration("ClientAuth", &format!("uint AuthType 0\nstring Username {NAME}\n")),
        declaration("ClientOption", &options),
        declaration("Policy", ""),
    ];
    declaration("CascadeList", &declaration("Cascade0", &parts.concat()))
}

fn declaration(name: &str, inside: &str) -> String {
    format!("declare {name}\n{{\n{inside}}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialling_hub_uses_only_tcp_and_encryption() {
        let text = configuration(&dialling_hub(Ipv4Addr::new(10, 0, 0, 2)));
        let settings = ["Hostname 10.0.0.2/tcp", "NoUdpAcceleration true", "UseEncrypt true", "MaxConnection 8"];
        assert!(settings.iter().all(|setting| text.contains(setting)), "{text}");
        assert!(!configuration(&listening_hub()).contains("CascadeList"));
    }

    #[test]
    fn configuration_has_balanced_braces() {
        let text = configuration(&dialling_hub(Ipv4Addr::LOCALHOST));
        let opened = text.lines().filter(|line| line.starts_with("declare ")).count();
        let lines = |wanted: &str| text.lines().filter(|line| *line == wanted).count();
        assert_eq!((lines("{"), lines("}")), (opened, opened), "{text}");
    }

    #[test]
    fn only_established_connections_to_the_port_are_counted() {
        let sockets = "  sl  local_address rem_address   st tx_queue\n\
                       0: 00000000:15B3 00000000:0000 0A 00000000\n\
                       1: 0200090A:15B3 0100090A:B4DA 01 00000000\n\
                       2: 0200090A:15B3 0100090A:B4DB 03 00000000\n\
                       3: 0200090A:B4DC 0100090A:15B3 01 00000000\n";
        assert_eq!(established_connections(sockets), 1);
    }
}
