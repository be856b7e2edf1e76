//! Hosts and links: the lab file ([`mod@file`]), its network namespaces ([`network`]), and a [`RunningLab`], which is
//! the network and the emulator that drives its links.

pub mod counters;
pub mod file;
pub mod host;
pub mod ip;
mod kernel_settings;
mod netem;
pub mod network;
pub mod plan;
pub mod sandbox;
pub mod shell;

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::ensure;
use ekiden_proto::units::{Bytes, Span};
use serde::{Deserialize, Serialize};

use super::emulator::{Emulator, StoppedCapture};
use crate::capture::CaptureOptions;
use ekiden_emulator::emulation::EmulationOptions;
use ekiden_emulator::ledger::DirectionReport;
use ekiden_emulator::links::{EmulationMode, Link, LinkEvent};
use ekiden_emulator::records::{PacketRecord, Recording};
use network::Network;

/// Values of parameters of kernel modules, by module and parameter, as in `/sys/module`.
pub type ModuleParameters = BTreeMap<String, BTreeMap<String, String>>;

/// A lab: all hosts and links of a lab file, with defaults filled in.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lab {
    /// Name of the lab.
    pub name: String,
    /// Seed of all random decisions.
    pub seed: u64,
    /// Timing of packet output of the emulator.
    pub mode: EmulationMode,
    /// Attachment of hosts to the emulator.
    pub backend: Backend,
    /// Address family of the traffic.
    #[serde(skip_serializing_if = "Family::is_ipv4")]
    pub family: Family,
    /// Parameters of kernel modules. Because they apply to the whole machine, they are supported only in virtual time.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub modules: ModuleParameters,
    /// Hosts by name. Each is a network namespace.
    pub hosts: BTreeMap<String, Host>,
    /// Links between hosts, by name.
    pub links: BTreeMap<String, Link>,
    /// Changes of link conditions at run time, in order of time.
    pub events: Vec<LinkEvent>,
}

impl Lab {
    /// Returns whether a link needs no emulator: both directions are perfect, and no event changes the link.
    #[must_use]
    pub fn is_bare(&self, link: &str) -> bool {
        self.links.get(link).is_some_and(Link::is_bare) && self.events.iter().all(|event| event.link != link)
    }
}

/// Address family of the traffic of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Hosts have IPv4 addresses only.
    #[default]
    Ipv4,
    /// Hosts have addresses of both families. Names of hosts, programs and checks use IPv6.
    Ipv6,
}

impl Family {
    /// Returns the length of an IP header without options, in bytes.
    #[must_use]
    pub const fn header_len(self) -> u32 {
        match self {
            Self::Ipv4 => 20,
            Self::Ipv6 => 40,
        }
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature of serde(skip_serializing_if)")]
    const fn is_ipv4(&self) -> bool {
        matches!(self, Self::Ipv4)
    }
}

/// Attachment of hosts to the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// A veth pair for each end, with the emulator on `AF_PACKET` sockets.
    #[default]
    Packet,
    /// A TUN device on each host.
    Tun,
    /// A veth pair and the kernel's netem instead of the emulator, for cross-checks on kernels with netem.
    Netem,
}

/// Configuration of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Host {
    /// Whether the host forwards IP packets.
    pub forward: bool,
    /// Congestion control of all connections of the host, pinned by its routes. `None`: the kernel's default.
    pub congestion: Option<String>,
    /// Maximum window of a connection in either direction; see [`host`]. `None`: the kernel's default.
    pub window: Option<Bytes>,
    /// Minimum retransmission timeout, pinned by the routes. `None`: the kernel's default, or the value a program sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto_min: Option<Span>,
    /// Loss recovery of TCP.
    #[serde(skip_serializing_if = "LossRecovery::is_new")]
    pub recovery: LossRecovery,
    /// Additional sysctls, as in `net.ipv4.tcp_rmem = "4096 131072 1048576"`.
    pub sysctl: BTreeMap<String, String>,
    /// Segmentation offload of the interfaces.
    pub offload: Offload,
}

/// Loss recovery of TCP on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossRecovery {
    /// The kernel's default: SACK (RFC 2018), RACK and TLP (RFC 8985), F-RTO (RFC 5682).
    #[default]
    New,
    /// Three duplicate acknowledgements (RFC 6582) or the retransmission timeout, without the mechanisms of `New`.
    Old,
}

impl LossRecovery {
    const fn is_new(&self) -> bool {
        matches!(self, Self::New)
    }

    /// Returns the sysctls to set to 0.
    #[must_use]
    pub fn sysctls(self) -> &'static [&'static str] {
        match self {
            Self::New => &[],
            // Each mechanism is off at 0.
            Self::Old => &[
                "net.ipv4.tcp_sack",
                "net.ipv4.tcp_dsack",
                "net.ipv4.tcp_recovery",
                "net.ipv4.tcp_early_retrans",
                "net.ipv4.tcp_frto",
            ],
        }
    }
}

/// Segmentation offload of a host's interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Offload {
    /// Superpackets of up to 64 KiB, as on real hosts.
    #[default]
    Gso,
    /// Separate packets of at most the MTU.
    Off,
}

/// Recording of the packets of a running lab. By default, nothing is recorded.
#[derive(Debug, Clone, Copy, Default)]
pub struct LabRecording<'a> {
    /// Links with a packet log.
    pub packet_log: &'a [String],
    /// Capture of all emulated links; `None` without a capture.
    pub capture: Option<&'a CaptureOptions>,
}

/// A running lab. Dropping it removes the network.
pub struct RunningLab {
    // Fields are dropped in this order: the emulator closes its interfaces before they are removed.
    emulator: Option<Emulator>,
    network: Network,
    started_at: Instant,
}

impl RunningLab {
    /// Builds the network, and starts the emulator if a link needs it.
    ///
    /// # Errors
    /// The system refused a step. The error names the remedy.
    pub fn start(lab: &Lab) -> anyhow::Result<Self> {
        Self::start_with_recording(lab, LabRecording::default())
    }

    /// Starts a lab with records of its packets.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start), or a capture of a lab without emulated links.
    pub fn start_with_recording(lab: &Lab, recording: LabRecording<'_>) -> anyhow::Result<Self> {
        let network = Network::build(lab)?;
        let wires = network.emulated_links();
        let LabRecording { packet_log, capture } = recording;
        ensure!(capture.is_none() || !wires.is_empty(), "no link of the lab has an emulator, which captures packets");
        let recording = if packet_log.is_empty() { Recording::None } else { Recording::Links(packet_log.to_vec()) };
        let options = EmulationOptions {
            mode: lab.mode,
            seed: lab.seed,
            events: lab.events.clone(),
            recording,
            ..EmulationOptions::default()
        };
        let emulator =
            if wires.is_empty() { None } else { Some(Emulator::start_with_capture(&wires, &options, capture)?) };
        Ok(Self { emulator, network, started_at: Instant::now() })
    }

    /// Returns the start time. Times of events count from it.
    #[must_use]
    pub const fn started_at(&self) -> Instant {
        self.started_at
    }

    /// Returns the network, with the hosts of the lab.
    #[must_use]
    pub const fn network(&self) -> &Network {
        &self.network
    }

    /// Returns the counters of every direction of every emulated link.
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn reports(&self) -> anyhow::Result<Vec<DirectionReport>> {
        self.emulator.as_ref().map_or_else(|| Ok(Vec::new()), Emulator::reports)
    }

    /// Stops the emulator and removes the network. Returns the capture, if there was one.
    ///
    /// # Errors
    /// The emulator had already ended.
    pub fn stop(self) -> anyhow::Result<Option<StoppedCapture>> {
        Ok(self.emulator.map(Emulator::into_capture).transpose()?.flatten())
    }

    /// Returns the records of packets that entered `link` at host `from`. The list is empty without a log of the link.
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn records(&self, link: &str, from: &str) -> anyhow::Result<Vec<PacketRecord>> {
        self.emulator.as_ref().map_or_else(|| Ok(Vec::new()), |emulator| emulator.records(link, from))
    }
}
