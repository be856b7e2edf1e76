//! SoftEther VPN between two hosts: a server at each with a virtual hub, which is bridged to a TAP device; one hub dials the
//! other (a cascade connection). Over TCP alone, encrypted as by default.
//!
//! Who wants to use it without its management tools writes `vpn_server.config`. The server looks for that, and leaves what it
//! writes, where the host's own would, so each gets these places for itself.

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

/// What to install for it. Its executable has no way to print its version.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "softether", package: "softether-vpnserver", executable: "vpnserver", version_arguments: &[] };

/// One of those it listens on by default, and the one that nothing else uses.
const PORT: u16 = 5555;
/// How many TCP connections one hub makes to another: what `vpncmd`'s CascadeCreate writes. It adds one in a second.
const CONNECTIONS: usize = 8;
/// How long it may take until all of them are there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// The name of the hubs, of the user, and of the device behind `tap_`, which it puts in front.
const NAME: &str = "lab";
const DEVICE: &str = "tap_lab";

/// Puts the current folder in the place of those where Debian's server keeps configuration, logs, locks and a cache, in a mount
/// namespace that ends with it, and becomes the server. (`execsvc` is what `start` runs in the background.)
const ISOLATION_SCRIPT: &str = r#"cd "$1" && for place in /var/lib /var/log /run /tmp; do mount -c --bind . "$place" || exit; done
cd / && exec "$2" execsvc"#;

/// Starts both ends, and returns when all of their connections are there.
///
/// # Errors
/// It is not installed, does not start, or the ends do not connect in 60 s.
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
    // Who finds nobody there tries again after 10 s, whatever its configuration says.
    let listening = begin(ends.right, &configuration(&listening_hub()))?;
    let dialling = begin(ends.left, &configuration(&dialling_hub(ends.right.outer_address)))?;
    let mut services = vec![listening, dialling];
    wait_until_connected(ends.right.host, &mut services)?;
    Ok(StartedTunnel { services, devices: [DEVICE; 2] })
}

/// A folder for the server on `host`, in which its log is the service's.
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
        let there = established_connections(&sockets);
        if there >= CONNECTIONS {
            return Ok(());
        }
        if let Some(failure) = services.iter_mut().find_map(Service::failure) {
            anyhow::bail!(failure);
        }
        anyhow::ensure!(!signal::is_interrupted(), "interrupted");
        if Instant::now() > deadline {
            let said: Vec<String> = services.iter().map(Service::describe).collect();
            anyhow::bail!(
                "only {there} of {CONNECTIONS} connections are there after {CONNECT_TIMEOUT:?}: {}",
                said.join("; ")
            );
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}

/// How many established connections there are to our port, in the words of `/proc/net/tcp`: state 1, addresses and ports in
/// hexadecimal digits (proc_net(5)).
fn established_connections(sockets: &str) -> usize {
    let port = format!(":{PORT:04X}");
    let is_one = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&port)) && words.nth(1) == Some("01")
    };
    sockets.lines().filter(is_one).count()
}

/// A server with a hub that is bridged to a device, and what else the hub has. What would look for the internet or disturb the
/// laboratory is off: it would raise the priority of its whole process group, and write its memory to a file when it ends.
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

/// A user who needs no password.
fn listening_hub() -> String {
    let user = declaration(NAME, "uint AuthType 0\n");
    declaration("SecurityAccountDatabase", &declaration("UserList", &user))
}

/// A connection to the hub at `right`. `/tcp` after its address: it tries no way there but TCP, where it would send packets
/// like those of ICMP and DNS, too. Without a policy, even an empty one, it would be passed over.
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
    fn nothing_but_tcp_goes_to_the_other_hub_and_it_is_encrypted() {
        let text = configuration(&dialling_hub(Ipv4Addr::new(10, 0, 0, 2)));
        let settings = ["Hostname 10.0.0.2/tcp", "NoUdpAcceleration true", "UseEncrypt true", "MaxConnection 8"];
        assert!(settings.iter().all(|setting| text.contains(setting)), "{text}");
        assert!(!configuration(&listening_hub()).contains("CascadeList"));
    }

    #[test]
    fn a_configuration_closes_what_it_opens() {
        let text = configuration(&dialling_hub(Ipv4Addr::LOCALHOST));
        let opened = text.lines().filter(|line| line.starts_with("declare ")).count();
        let lines = |wanted: &str| text.lines().filter(|line| *line == wanted).count();
        assert_eq!((lines("{"), lines("}")), (opened, opened), "{text}");
    }

    #[test]
    fn connections_to_the_port_count_once_they_are_established() {
        let sockets = "  sl  local_address rem_address   st tx_queue\n\
                       0: 00000000:15B3 00000000:0000 0A 00000000\n\
                       1: 0200090A:15B3 0100090A:B4DA 01 00000000\n\
                       2: 0200090A:15B3 0100090A:B4DB 03 00000000\n\
                       3: 0200090A:B4DC 0100090A:15B3 01 00000000\n";
        assert_eq!(established_connections(sockets), 1);
    }
}
