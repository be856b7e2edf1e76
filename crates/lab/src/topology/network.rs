//! Network namespaces, interfaces, addresses and routes of a running lab.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, bail, ensure};
use ekiden_sys::{congestion, ethtool, tun};

use super::counters::RecoveryCounters;
use super::host;
use crate::emulator::{EmulatedLink, Port};
use crate::topology::plan::{MAX_LINKS, NetworkPlan, PlannedLink};
use crate::topology::{Backend, Family, Host, Lab, Offload, counters, ip, kernel_settings, netem, sandbox};

pub use crate::topology::host::HostHandle;

/// Hosts and emulated links of a running lab. The kernel removes everything when this is dropped and the programs of
/// the lab have ended, or when the process ends.
pub struct Network {
    name: String,
    hosts: BTreeMap<String, HostHandle>,
    /// Interfaces of each host that are ends of links.
    link_interfaces: BTreeMap<String, BTreeSet<String>>,
    emulated_links: Vec<EmulatedLink>,
    /// Packets that the kernels dropped while the interfaces came up, by host and counter: the kernel reports its IPv6
    /// multicast groups by itself (RFC 9777).
    setup_drops: BTreeMap<String, u64>,
}

/// Number for the next interfaces in the emulator's network namespace. Numbers are never reused, because the kernel
/// removes old interfaces asynchronously.
static NEXT_LINK_NUMBER: AtomicUsize = AtomicUsize::new(0);

impl Network {
    /// Creates namespaces, interfaces, addresses, neighbours and routes, and pins congestion control. Afterwards every
    /// host's name resolves on every host. Works only inside the [`sandbox`], for one network at a time.
    ///
    /// # Errors
    /// The system refused a step. The error names the remedy.
    pub fn build(lab: &Lab) -> anyhow::Result<Self> {
        ensure!(lab.links.len() <= MAX_LINKS, "a lab has at most {MAX_LINKS} links");
        kernel_settings::set_module_parameters(&lab.modules)?;
        let plan = NetworkPlan::new(lab);
        let mut network = Self {
            name: lab.name.clone(),
            hosts: BTreeMap::new(),
            link_interfaces: BTreeMap::new(),
            emulated_links: Vec::new(),
            setup_drops: BTreeMap::new(),
        };
        for (name, host) in &lab.hosts {
            let handle = HostHandle::new(name, plan.address_of(name), plan.ipv4_of(name))?;
            handle
                .set_sysctls(namespace_sysctls(host, lab.family).iter().map(|(key, value)| (*key, value.as_str())))?;
            network.hosts.insert(name.clone(), handle);
            let ends = plan.ends_of(name).map(|(_, end, _)| end.interface.clone());
            network.link_interfaces.insert(name.clone(), ends.collect());
        }
        for line in &plan.links {
            let wire = network.create_link(line, lab).with_context(|| format!("link {:?}", line.name))?;
            network.emulated_links.extend(wire);
        }
        for (name, host) in &lab.hosts {
            network.configure_host(&plan, name, host, lab.backend).with_context(|| format!("host {name:?}"))?;
        }
        network.wait_for_carriers(&plan, lab.backend)?;
        network.write_hosts_file()?;
        network.verify_congestion_control(lab)?;
        network.setup_drops = network.hidden_drops()?.into_iter().collect();
        Ok(network)
    }

    /// Returns the name of the lab.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a host by name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&HostHandle> {
        self.hosts.get(name)
    }

    /// Returns all hosts, in order of names.
    pub fn hosts(&self) -> impl Iterator<Item = &HostHandle> {
        self.hosts.values()
    }

    /// Returns the links for the emulator: every link that is not bare.
    #[must_use]
    pub fn emulated_links(&self) -> Vec<EmulatedLink> {
        self.emulated_links.clone()
    }

    /// Returns the packets dropped or found damaged by the hosts' kernels since the lab was built, by host and counter. Any
    /// such packet means that the measurement does not match the lab file. Devices created by programs are excluded: a
    /// tunnel may drop packets.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn hidden_drops(&self) -> anyhow::Result<Vec<(String, u64)>> {
        let mut drops = Vec::new();
        for (name, host) in &self.hosts {
            let counted = host.enter(|| counters::read_drops(&self.link_interfaces[name])).and_then(|counted| counted);
            let counted = counted.with_context(|| format!("host {name:?}: cannot read its counters"))?;
            drops.extend(counted.into_iter().map(|(what, count)| (format!("{name} {what}"), count)));
        }
        drops.iter_mut().for_each(|(what, count)| *count -= self.setup_drops.get(what).copied().unwrap_or_default());
        drops.retain(|(_, count)| *count > 0);
        Ok(drops)
    }

    /// Verifies that no host's kernel dropped or damaged a packet.
    ///
    /// # Errors
    /// A kernel dropped or damaged a packet, or the counters cannot be read.
    pub fn ensure_no_hidden_drops(&self) -> anyhow::Result<()> {
        let hidden = self.hidden_drops()?.into_iter().find(|(_, count)| *count > 0);
        hidden.map_or(Ok(()), |(what, count)| bail!("{what}: {count} packets dropped outside of the links"))
    }

    /// Returns the counters of TCP's loss recovery since the start, summed over all hosts.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn recovery(&self) -> anyhow::Result<RecoveryCounters> {
        let of = |host: &HostHandle| Ok(host.enter(counters::read_recovery)??);
        self.hosts().map(of).sum::<anyhow::Result<RecoveryCounters>>()
    }

    fn require_host(&self, name: &str) -> anyhow::Result<&HostHandle> {
        self.hosts.get(name).with_context(|| format!("there is no host {name:?}"))
    }

    /// Creates the interfaces of a link. Returns the link if the emulator has to drive it.
    fn create_link(&self, line: &PlannedLink<'_>, lab: &Lab) -> anyhow::Result<Option<EmulatedLink>> {
        let wire = |ports| Some(EmulatedLink { name: line.name.to_owned(), ports, link: line.link.clone() });
        if line.bare {
            return self.create_bare_link(line).map(|()| None);
        }
        match lab.backend {
            Backend::Packet => self.create_veth_pairs(line).map(|peers| wire(peers.map(Port::Interface))),
            Backend::Tun => self.create_tun_devices(line, lab).map(wire),
            Backend::Netem => {
                let peers = self.create_veth_pairs(line)?;
                netem::create_link(lab, line.name, line.link, &peers).map(|()| None)
            }
        }
    }

    fn create_bare_link(&self, line: &PlannedLink<'_>) -> anyhow::Result<()> {
        let [a, b] = &line.ends;
        let (namespace_a, namespace_b) =
            (self.require_host(&a.host)?.namespace_path()?, self.require_host(&b.host)?.namespace_path()?);
        let mtu = line.link.mtu;
        let command = format!(
            "link add name {} mtu {mtu} address {} netns {} type veth peer name {} mtu {mtu} address {} netns {}",
            a.interface,
            a.mac,
            namespace_a.display(),
            b.interface,
            b.mac,
            namespace_b.display()
        );
        ip::run_batch(None, &[command])
    }

    /// Creates a veth pair for each end, with the peers in the emulator's network namespace. Returns the names of the
    /// peers.
    fn create_veth_pairs(&self, line: &PlannedLink<'_>) -> anyhow::Result<[String; 2]> {
        let number = NEXT_LINK_NUMBER.fetch_add(1, Ordering::Relaxed);
        let mtu = line.link.mtu;
        let peers = ["a", "b"].map(|side| format!("w{number}{side}"));
        let mut commands = Vec::new();
        for (end, peer) in line.ends.iter().zip(&peers) {
            let namespace = self.require_host(&end.host)?.namespace_path()?;
            commands.push(format!(
                "link add name {} mtu {mtu} address {} netns {} type veth peer name {peer} mtu {mtu}",
                end.interface,
                end.mac,
                namespace.display()
            ));
            commands.push(format!("link set dev {peer} txqueuelen 10000 up"));
        }
        ip::run_batch(None, &commands)?;
        Ok(peers)
    }

    fn create_tun_devices(&self, line: &PlannedLink<'_>, lab: &Lab) -> anyhow::Result<[Port; 2]> {
        let open = |end: usize| {
            let end = &line.ends[end];
            let offload = lab.hosts.get(&end.host).is_some_and(|host| host.offload == Offload::Gso);
            let host = self.require_host(&end.host)?;
            let device = host.enter(|| tun::create(&end.interface, offload)).and_then(|device| device).context(
                "cannot create a TUN device: /dev/net/tun must exist (`modprobe tun`) and be open to this user (mode 0666)",
            )?;
            ip::run_batch(Some(host), &[format!("link set dev {} mtu {}", end.interface, line.link.mtu)])?;
            anyhow::Ok(Port::Tun(Arc::new(device)))
        };
        Ok([open(0)?, open(1)?])
    }

    /// Runs [`NetworkPlan::ip_commands`] on a host, and disables offloads as planned.
    fn configure_host(&self, plan: &NetworkPlan<'_>, name: &str, host: &Host, backend: Backend) -> anyhow::Result<()> {
        let handle = self.require_host(name)?;
        ip::run_batch(Some(handle), &plan.ip_commands(name, backend)).map_err(
            |error| match unknown_congestion_message(host) {
                Some(known) => error.context(known),
                None => error,
            },
        )?;
        let is_disabled =
            |line: &PlannedLink<'_>| line.is_ethernet(backend) && plan.is_offload_disabled(line, name, backend);
        for (line, end, _) in plan.ends_of(name).filter(|(line, ..)| is_disabled(line)) {
            let result = handle.enter(|| ethtool::disable_segmentation(&end.interface)).and_then(|done| done);
            result.with_context(|| format!("cannot disable the offloads of {:?}", line.name))?;
        }
        Ok(())
    }

    fn wait_for_carriers(&self, plan: &NetworkPlan<'_>, backend: Backend) -> anyhow::Result<()> {
        for (name, host) in &self.hosts {
            let veths = plan.ends_of(name).filter(|(line, ..)| line.is_ethernet(backend));
            let veths = veths.map(|(_, end, _)| end.interface.as_str()).collect();
            ip::wait_operational(Some(host), &veths).with_context(|| format!("host {name:?}"))?;
        }
        let peers = self.emulated_links.iter().flat_map(|wire| &wire.ports).filter_map(|port| match port {
            Port::Interface(name) => Some(name.as_str()),
            Port::Tun(_) => None,
        });
        ip::wait_operational(None, &peers.collect())
    }

    /// Writes names and addresses to the file that [`sandbox`] mounts over `/etc/hosts`.
    fn write_hosts_file(&self) -> anyhow::Result<()> {
        let mut text = "127.0.0.1 localhost\n".to_owned();
        for host in self.hosts.values() {
            writeln!(text, "{} {}", host.address(), host.name())?;
            if host.address().is_ipv6() {
                writeln!(text, "{} {}", host.ipv4(), host.name())?;
            }
        }
        fs::write(sandbox::run_directory()?.join("hosts"), text).context("cannot write the lab's hosts file")
    }

    /// Verifies, on every host with pinned congestion control, the congestion control of connections to every other
    /// host.
    fn verify_congestion_control(&self, lab: &Lab) -> anyhow::Result<()> {
        for (name, host) in &lab.hosts {
            let Some(expected) = &host.congestion else { continue };
            for to in self.hosts.values().filter(|to| to.name() != name && !to.address().is_loopback()) {
                // Port 9 (discard): the datagram socket needs no answer.
                let target = SocketAddr::new(to.address(), 9);
                let found =
                    self.require_host(name)?.enter(|| congestion::for_destination(target)).and_then(|found| found);
                let found = found.with_context(|| format!("host {name:?} cannot reach {:?}", to.name()))?;
                ensure!(
                    found == *expected,
                    "host {name:?}: congestion = {expected:?}, but connections to {:?} use {found:?}",
                    to.name()
                );
            }
        }
        Ok(())
    }
}

/// Returns the sysctls of a host's namespace, in order. The first ones override values inherited from the machine.
fn namespace_sysctls(host: &Host, family: Family) -> Vec<(&str, String)> {
    let mut settings = [
        ("net.ipv4.ip_forward", if host.forward { "1" } else { "0" }),
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
        ("net.ipv4.tcp_no_metrics_save", "1"),
    ]
    .map(|(key, value)| (key, value.to_owned()))
    .to_vec();
    match family {
        Family::Ipv4 if !fs::exists("/proc/sys/net/ipv6").unwrap_or(false) => {}
        Family::Ipv4 => {
            let off = ["net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6"];
            settings.extend(off.map(|key| (key, "1".to_owned())));
        }
        Family::Ipv6 => {
            let forward = if host.forward { "1" } else { "0" };
            let on = [
                ("net.ipv6.conf.all.disable_ipv6", "0"),
                ("net.ipv6.conf.default.disable_ipv6", "0"),
                ("net.ipv6.conf.all.forwarding", forward),
                // No link-local addresses (addrconf.c: IN6_ADDR_GEN_MODE_NONE), and no router solicitations.
                ("net.ipv6.conf.default.addr_gen_mode", "1"),
                ("net.ipv6.conf.default.accept_ra", "0"),
            ];
            settings.extend(on.map(|(key, value)| (key, value.to_owned())));
        }
    }
    settings.extend(host.recovery.sysctls().iter().map(|key| (*key, "0".to_owned())));
    settings.extend(host.window.map(host::window_sysctls).unwrap_or_default());
    settings.extend(host.sysctl.iter().map(|(key, value)| (key.as_str(), value.clone())));
    settings
}

/// Returns the available congestion controls as an error message, if the kernel lacks the one of the host.
fn unknown_congestion_message(host: &Host) -> Option<String> {
    let expected = host.congestion.as_ref()?;
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").ok()?;
    let unknown = !available.split_whitespace().any(|name| name == expected);
    unknown.then(|| format!("congestion = {expected:?}, but this kernel has: {}", available.trim()))
}
