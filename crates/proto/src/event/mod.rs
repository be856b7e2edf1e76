//! The events of a relay. The log, the metrics, `ekiden status` and the tests read the same events, so they cannot
//! disagree. Every session ends in exactly one [`Event::Closed`].

mod closed;

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::cause::Cause;
use crate::path::prefix::Prefix;
use crate::profile::AppliedSetting;

pub use closed::{ChoiceRecord, EndReason, SectionInfo, SessionClosed};

/// Something that happened in a relay.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A listener is ready; with port 0 in the configuration this is how to learn the port.
    Listening {
        /// The listener's name.
        listener: String,
        /// How clients reach it: `auto`, `socks`, `http` or `tcp`.
        kind: &'static str,
        /// The address it is bound to.
        address: SocketAddr,
    },
    /// A profile met the kernel for the first time at this place.
    ProfileApplied {
        /// The listener or hop.
        place: String,
        /// The profile's name.
        profile: String,
        /// The settings with their outcomes.
        settings: Vec<AppliedSetting>,
    },
    /// A congestion control of a profile was loaded by ekiden, or replaced by another one.
    Congestion(CongestionStatus),
    /// One request through the HTTP forward proxy was answered.
    Request(Box<RequestCompleted>),
    /// A session ended.
    Closed(Box<SessionClosed>),
    /// Accepting stopped for a while.
    AcceptPaused {
        /// The listener's name.
        listener: String,
        /// Why: `too_many_open_files`, `session_limit`, ...
        reason: &'static str,
    },
    /// Accepting went on after a pause.
    AcceptResumed {
        /// The listener's name.
        listener: String,
    },
    /// Connections that could be ours go on without us.
    BypassBegan {
        /// The listener's name.
        listener: String,
        /// Why: `session_limit`, `client_limit`, `draining` or `failed`.
        reason: &'static str,
    },
    /// They are ours again.
    BypassEnded {
        /// The listener's name.
        listener: String,
        /// Why they were not.
        reason: &'static str,
    },
    /// A next hop is unreachable; it is tried again with growing delays.
    RelayDown {
        /// The hop's name.
        relay: String,
        /// The cause of the failure.
        cause: Cause,
        /// Details in words.
        detail: Option<String>,
    },
    /// A next hop is reachable again.
    RelayUp {
        /// The hop's name.
        relay: String,
        /// Length of the outage.
        #[serde(rename = "seconds", serialize_with = "seconds")]
        duration: Duration,
    },
    /// Relays of the fleet have come, begun to drain, or gone.
    FleetChanged {
        /// Number of relays that accept sessions, those of the file included.
        relays: usize,
        /// Relays that joined or returned.
        joined: Vec<String>,
        /// Relays that accept no further sessions.
        draining: Vec<String>,
        /// Relays that left.
        left: Vec<String>,
    },
    /// No server of etcd answers; the last known fleet stays.
    EtcdDown {
        /// The server that was asked last.
        server: String,
        /// The error of etcd.
        detail: String,
        /// How many relays are known.
        known: usize,
    },
    /// Etcd answers again.
    EtcdUp {
        /// The server that answers.
        server: String,
        /// For how long none did.
        #[serde(rename = "seconds", serialize_with = "seconds")]
        duration: Duration,
    },
    /// Sessions to a network of targets take another path from now on.
    PathChanged {
        /// The network; `None` if the log omits networks.
        prefix: Option<Prefix>,
        /// The size of the sessions that this is about, in bytes.
        likely_bytes: u64,
        /// Where most of these go: `down` or `up`.
        likely_direction: &'static str,
        /// The former path.
        from: String,
        /// The new path.
        to: String,
        /// Why, with the figures.
        why: String,
    },
    /// A new configuration is in force for new sessions.
    Reloaded {
        /// How many listeners there are now.
        listeners: usize,
    },
    /// A new configuration was rejected; the old one stays.
    ReloadRejected {
        /// Every error in the configuration.
        mistakes: Vec<String>,
    },
    /// A new process serves; this process lets its sessions finish.
    Upgraded {
        /// The pid of the new process.
        pid: u32,
        /// The version of the new process.
        version: String,
    },
    /// An upgrade failed; this process continues.
    UpgradeFailed {
        /// The reason, in words.
        why: String,
    },
    /// No new sessions; running ones may finish.
    Draining {
        /// Sessions still open.
        open: usize,
        /// How long they have.
        #[serde(serialize_with = "seconds")]
        deadline: Duration,
    },
    /// The relay has ended.
    Stopped {
        /// Sessions that the drain deadline cut off.
        aborted: usize,
    },
    /// Lines that the log left out, because an unauthenticated peer can cause any number of them.
    Suppressed {
        /// The reason of the suppressed lines: an end, or an event.
        reason: &'static str,
        /// Number of suppressed lines.
        lines: u64,
        /// The time span of the suppressed lines.
        #[serde(rename = "seconds", serialize_with = "seconds")]
        duration: Duration,
    },
    /// Something an operator should know, in words.
    Warning {
        /// A sentence, with the remedy if there is one.
        message: String,
    },
}

/// The state of a congestion control that a profile asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CongestionStatus {
    /// The requested name.
    pub name: String,
    /// The control that sections actually use.
    pub in_use: String,
    /// The origin of the control, in words; `None` if it could not be loaded.
    pub from: Option<String>,
    /// Why the control is not loaded, and the remedy.
    pub why: Option<String>,
}

impl CongestionStatus {
    /// The value of [`CongestionStatus::from`] for controls of the kernel.
    pub const KERNEL: &str = "kernel";

    /// Whether the state is worth a log line: another control is in use, or one from outside the kernel.
    #[must_use]
    pub fn is_worth_logging(&self) -> bool {
        self.name != self.in_use || self.from.as_deref() != Some(Self::KERNEL)
    }
}

/// A request that went through the HTTP forward proxy. Query strings and credentials are left out.
#[derive(Debug, Clone, Serialize)]
pub struct RequestCompleted {
    /// The session of the request.
    pub session: u64,
    /// GET, POST, ...
    pub method: String,
    /// Scheme, host and path.
    pub url: String,
    /// The status the client saw.
    pub status: u16,
    /// Whether an idle connection was used again.
    pub reused: bool,
    /// Bytes toward the server, head and body.
    pub bytes_up: u64,
    /// Bytes toward the client, heads and body.
    pub bytes_down: u64,
    /// From the request's head to the response's last byte.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub duration: Duration,
}

fn seconds<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}
