//! Targets on the relay's own host: the firewall of the host does not filter connections from the relay to them.

use std::process::Command;

use crate::curl::{Fetched, curl_with, proxy_option};
use crate::harness::{Folder, Relay, ekiden};
use crate::network::Host;
use crate::programs::is_any_missing;

/// The addresses of the relay's host, which are neither loopback nor private, and the port of the admin listener.
const OWN: &str = "203.0.113.5";
const OWN_V6: &str = "2001:db8:5::1";
const ADMIN: u16 = 9090;

/// A host with a public address of each family, and a relay on it. Port 1080 is an open listener; port 1081 also has
/// [`OWN`] in `allow`. The admin listener is bound to all addresses.
struct Fixture {
    host: Host,
    relay: Relay,
    _folder: Folder,
}

impl Fixture {
    fn new() -> Option<Self> {
        let host = Host::new()?;
        host.ip("link add here type veth peer name there");
        host.ip("link set here up");
        host.ip("link set there up");
        host.ip(&format!("address add {OWN}/24 dev here"));
        host.ip(&format!("address add {OWN_V6}/64 dev here nodad"));
        let folder = Folder::new();
        let token = folder.write_with_mode("token", "0123456789abcdef0123456789abcdef\n", 0o600);
        let text = format!(
            "version = 1\n[admin]\nbind = \"[::]:{ADMIN}\"\ntoken_file = \"{}\"\n\
             [[listener]]\nbind = \"[::]:1080\"\nallow_open = true\n\
             [[listener]]\nbind = \"[::]:1081\"\nallow_open = true\nallow = [\"{OWN}\"]\n",
            token.display()
        );
        let file = folder.write("ekiden.toml", text);
        let mut command = host.in_namespace(ekiden());
        command.args(["run", "-c"]).arg(file);
        let relay = Relay::start_with_admin(&mut command, 2, folder.0.join("unused"));
        Some(Self { host, relay, _folder: folder })
    }

    /// Runs curl on the relay's host.
    fn curl(&self, arguments: &[&str]) -> Fetched {
        curl_with(&mut self.host.in_namespace(Command::new("curl")), arguments)
    }

    /// Requests `target` from the open listener by each protocol. Returns the field `end` of each closing event.
    fn session_ends(&mut self, target: &str) -> Vec<String> {
        let (url, relay) = (format!("http://{target}/"), format!("{OWN}:1080").parse().unwrap());
        let mut end = |arguments: &[&str]| {
            self.curl(arguments);
            self.relay.closed()["end"].as_str().unwrap().to_owned()
        };
        vec![
            end(&[&proxy_option("http", relay), &url]),
            end(&[&proxy_option("http", relay), "-p", &url]),
            end(&[&proxy_option("socks5h", relay), &url]),
            end(&[&proxy_option("socks4", relay), &url]),
        ]
    }
}

/// Regression: a port that the firewall of the relay's host closes was reachable through an open listener.
#[test]
fn own_addresses_are_private_unless_allowed() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let Some(mut fixture) = Fixture::new() else { return };
    let url = format!("http://{OWN}:{ADMIN}/metrics");
    // The admin listener is reachable from its host: without the token, its status is 401.
    fixture.curl(&[&url]).assert_ended(0, 401);
    let open = format!("{OWN}:1080").parse().unwrap();
    for host in [OWN.to_owned(), format!("[{OWN_V6}]"), format!("[::ffff:{OWN}]")] {
        let url = format!("http://{host}:{ADMIN}/metrics");
        fixture.curl(&[&proxy_option("http", open), "-g", &url]).assert_ended(0, 403);
        assert_eq!(fixture.relay.closed()["end"], "denied", "{url}");
        let fetched = fixture.curl(&[&proxy_option("http", open), "-g", "-p", &url]);
        assert_eq!((fetched.code, fetched.transfers[0].connect_status), (56, 403), "{url}: {}", fetched.err);
        assert_eq!(fixture.relay.closed()["end"], "denied", "{url}");
        let fetched = fixture.curl(&[&proxy_option("socks5h", open), "-g", &url]);
        assert!(fetched.code == 97 && fetched.err.contains("(2)"), "{url}: {}", fetched.err);
        assert_eq!(fixture.relay.closed()["end"], "denied", "{url}");
    }
    let allowing = format!("{OWN}:1081").parse().unwrap();
    fixture.curl(&[&proxy_option("http", allowing), &url]).assert_ended(0, 401);
    assert_eq!(fixture.relay.closed()["end"], "finished");
}

/// Addresses may be added and removed while the relay runs, and routes of the type `local` make further addresses
/// local.
#[test]
fn address_changes_of_the_host_take_effect_at_once() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let Some(mut fixture) = Fixture::new() else { return };
    let (target, routed) = (format!("198.51.100.7:{ADMIN}"), format!("192.0.2.9:{ADMIN}"));
    assert_eq!(fixture.session_ends(&target), ["unreachable"; 4]);
    assert_eq!(fixture.session_ends(&routed), ["unreachable"; 4]);
    fixture.host.ip("address add 198.51.100.7/32 dev here");
    fixture.host.ip("route add local 192.0.2.0/24 dev lo");
    assert_eq!(fixture.session_ends(&target), ["denied"; 4]);
    assert_eq!(fixture.session_ends(&routed), ["denied"; 4]);
    fixture.host.ip("address del 198.51.100.7/32 dev here");
    assert_eq!(fixture.session_ends(&target), ["unreachable"; 4]);
}
