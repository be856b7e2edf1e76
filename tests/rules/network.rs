//! Hosts in unnamed network namespaces, which end with the test, and the rules in their kernels.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Output};
use std::sync::Arc;

use ekiden_sys::netns;

use super::harness::{ekiden, eventually, skipped};

/// A host: a network namespace.
#[derive(Clone)]
pub struct Host(Arc<OwnedFd>);

/// Exit code and output of a program.
pub struct CommandOutput {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Host {
    /// Creates a host without links. Returns `None` and prints a message if namespaces are not permitted.
    pub fn new() -> Option<Self> {
        match netns::new_network_namespace() {
            Ok(namespace) => {
                let host = Self(Arc::new(namespace));
                host.ip("link set lo up");
                // Duplicate address detection is unnecessary: no other host has this host's IPv6 addresses.
                host.set("ipv6/conf/default/accept_dad", "0");
                Some(host)
            }
            Err(error) => {
                skipped(format_args!("no network namespaces: {error}"));
                None
            }
        }
    }

    /// Returns a command that runs a program on this host.
    pub fn command(&self, program: &str) -> Command {
        self.in_namespace(Command::new(program))
    }

    /// Makes a command start in the namespace of this host.
    pub fn in_namespace(&self, mut command: Command) -> Command {
        netns::start_in_network_namespace(&mut command, Arc::clone(&self.0));
        command
    }

    /// Runs `ip`, which has to succeed; returns its output.
    pub fn ip(&self, arguments: &str) -> String {
        self.run("ip", arguments)
    }

    /// Runs a program, which has to succeed; returns its output.
    pub fn run(&self, program: &str, arguments: &str) -> String {
        let output = decode_output(&mut self.command(program).args(arguments.split(' ')).output().expect(program));
        assert_eq!(output.code, Some(0), "{program} {arguments}: {}", output.err);
        output.out
    }

    /// Runs nft with this input, which nft has to accept.
    pub fn nft(&self, text: &str) {
        let output = self.shell(&format!("nft -f - <<'END'\n{text}\nEND\n"));
        assert_eq!(output.code, Some(0), "{text}: {}", output.err);
    }

    pub fn shell(&self, script: &str) -> CommandOutput {
        decode_output(&mut self.command("sh").args(["-c", script]).output().expect("sh"))
    }

    /// Runs `ekiden ARGUMENTS`.
    pub fn ekiden(&self, arguments: &[&str]) -> CommandOutput {
        decode_output(&mut self.in_namespace(ekiden()).args(arguments).output().expect("ekiden runs"))
    }

    /// Runs `ekiden ARGUMENTS`, which has to succeed; returns its output.
    pub fn run_ekiden(&self, arguments: &[&str]) -> String {
        let output = self.ekiden(arguments);
        assert_eq!(output.code, Some(0), "{arguments:?}: {}{}", output.out, output.err);
        output.out
    }

    /// Runs a closure in the namespace of this host, on a separate thread.
    pub fn inside<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let enter = || {
            netns::enter_network_namespace(self.0.as_fd()).expect("the namespace of the host");
            act()
        };
        std::thread::scope(|scope| scope.spawn(enter).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }

    /// Returns the number of packets of a named counter in the nftables table of ekiden.
    pub fn counter(&self, counter: &str) -> u64 {
        let text = self.run("nft", &format!("list counter inet ekiden {counter}"));
        let line = text.lines().find_map(|line| line.trim().strip_prefix("packets ")).expect("a counter");
        line.split(' ').next().unwrap().parse().unwrap()
    }

    /// Creates a link to another host, and waits until both ends are up.
    fn link(&self, name: &str, other: &Self, there: &str) {
        let path = format!("/proc/{}/fd/{}", std::process::id(), other.0.as_raw_fd());
        self.ip(&format!("link add {name} type veth peer name {there} netns {path}"));
        self.ip(&format!("link set {name} up"));
        other.ip(&format!("link set {there} up"));
        // The kernel drops packets until the link is up.
        for (host, name) in [(self, name), (other, there)] {
            eventually(&format!("the interface {name} to be up"), || {
                host.ip(&format!("link show {name}")).contains("state UP").then_some(())
            });
        }
    }

    fn address(&self, network: u8, host: u8, name: &str) {
        self.ip(&format!("address add 10.{network}.0.{host}/24 dev {name}"));
        self.ip(&format!("address add fd0{network}::{host}/64 dev {name}"));
        // The kernel joins the solicited-node group of the address (RFC 4861, 7.2.1) a moment later; a solicitation
        // before that is not answered, and the packet that caused the solicitation waits for a second.
        let tentative = || self.ip("-6 -o address show tentative");
        eventually("usable IPv6 addresses", || tentative().is_empty().then_some(()));
    }

    fn gateway(&self, network: u8) {
        self.ip(&format!("route add default via 10.{network}.0.1"));
        self.ip(&format!("-6 route add default via fd0{network}::1"));
    }

    fn enable_forwarding(&self) {
        self.set("ipv4/ip_forward", "1");
        self.set("ipv6/conf/all/forwarding", "1");
    }

    /// Sets a value below `net` of sysctl(8).
    pub fn set(&self, path: &str, value: &str) {
        self.inside(|| std::fs::write(format!("/proc/sys/net/{path}"), value).expect(path));
    }
}

pub fn decode_output(output: &mut Output) -> CommandOutput {
    let text = |bytes: &mut Vec<u8>| String::from_utf8(std::mem::take(bytes)).expect("text");
    CommandOutput { code: output.status.code(), out: text(&mut output.stdout), err: text(&mut output.stderr) }
}

/// client (10.1.0.2, fd01::2) - lan0 middle wan0 - (10.2.0.2) router (10.3.0.1) - server (10.3.0.2, fd03::2). The MTU
/// of the last link is 1400 bytes.
pub struct Network {
    pub client: Host,
    pub middle: Host,
    pub server: Host,
    router: Host,
}

impl Network {
    pub fn new() -> Option<Self> {
        let [client, middle, router, server] = [Host::new()?, Host::new()?, Host::new()?, Host::new()?];
        client.link("eth0", &middle, "lan0");
        middle.link("wan0", &router, "near");
        router.link("far", &server, "eth0");
        for (host, network, number, name) in [
            (&client, 1, 2, "eth0"),
            (&middle, 1, 1, "lan0"),
            (&middle, 2, 1, "wan0"),
            (&router, 2, 2, "near"),
            (&router, 3, 1, "far"),
            (&server, 3, 2, "eth0"),
        ] {
            host.address(network, number, name);
        }
        [&middle, &router].into_iter().for_each(Host::enable_forwarding);
        router.ip("link set far mtu 1400");
        server.ip("link set eth0 mtu 1400");
        client.gateway(1);
        server.gateway(3);
        router.gateway(2);
        middle.ip("route add 10.3.0.0/24 via 10.2.0.2");
        middle.ip("-6 route add fd03::/64 via fd02::2");
        Some(Self { client, middle, server, router })
    }

    /// Adds a link between client and router, around `middle`. Packets from the server to the client use this link;
    /// with `client_bypasses`, packets from the client to the server use it instead.
    pub fn route_around_middle(&self, client_bypasses: bool) {
        self.client.link("round", &self.router, "round");
        self.client.address(4, 2, "round");
        self.router.address(4, 1, "round");
        if client_bypasses {
            self.client.ip("route add 10.3.0.0/24 via 10.4.0.1 src 10.1.0.2");
        } else {
            self.router.ip("route add 10.1.0.0/24 via 10.4.0.2");
        }
        // A reverse path filter, strict or loose, could drop the packets.
        for host in [&self.client, &self.router] {
            host.set("ipv4/conf/all/rp_filter", "0");
            host.set("ipv4/conf/round/rp_filter", "0");
        }
    }
}

/// Applies the rules for these listeners.
pub fn apply(host: &Host, urls: &[&str]) {
    let arguments = ["rules", "apply"].into_iter().chain(urls.iter().flat_map(|url| ["-L", url]));
    host.run_ekiden(&arguments.collect::<Vec<_>>());
}

/// Replaces the gates of all instances with a rule that admits every SYN.
pub fn admit(host: &Host) {
    host.nft(
        "table inet admit { chain admit { type filter hook prerouting priority raw + 1; \
         meta mark & 0xf0f00000 == 0xe0100000 meta mark set meta mark ^ 0x00300000; }; }",
    );
}

/// Returns all rules and routes of a host, including those of ekiden.
pub fn all_rules(host: &Host) -> String {
    let script = "nft list ruleset; iptables-save -t raw; ip6tables-save -t raw; ip rule; ip -6 rule; \
        ip route show table all; ip -6 route show table all";
    host.shell(script).out
}

/// Returns the rules that may be ekiden's, in alphabetical order, without the empty chain that iptables leaves in its
/// table, and without counters and handles.
pub fn ekiden_rules(host: &Host) -> Vec<String> {
    let lines = all_rules(host);
    let names = ["ekiden", "EKIDEN", "0xe", "5734", "5735"];
    let mut rules: Vec<_> = lines.lines().filter(|line| names.iter().any(|name| line.contains(name))).collect();
    rules.sort_unstable();
    rules.into_iter().map(str::to_owned).collect()
}
