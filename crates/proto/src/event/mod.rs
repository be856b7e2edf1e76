//! Everything a relay has to tell. The log, the metrics, `ekiden status` and the tests all read these events, so they
//! cannot disagree. Every session ends in exactly one [`Event::Closed`].

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
        /// Setting by setting.
        settings: Vec<AppliedSetting>,
    },
    /// A congestion control that a profile asks for came from outside the kernel, or another one is in its place.
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
    /// A next hop cannot be used; it is tried again in growing pauses.
    RelayDown {
        /// Its name.
        relay: String,
        /// Why.
        cause: Cause,
        /// More, in words.
        detail: Option<String>,
    },
    /// It can be used again.
    RelayUp {
        /// Its name.
        relay: String,
        /// For how long it could not.
        #[serde(rename = "seconds", serialize_with = "seconds")]
        duration: Duration,
    },
    /// Relays of the fleet have come, begun to drain, or gone.
    FleetChanged {
        /// How many relays take sessions now, those of the file among them.
        relays: usize,
        /// Who has come, or come back.
        joined: Vec<String>,
        /// Who takes no new sessions any more.
        draining: Vec<String>,
        /// Who is gone.
        left: Vec<String>,
    },
    /// No server of etcd answers; the last known fleet stays.
    EtcdDown {
        /// The server that was asked last.
        server: String,
        /// Why.
        detail: String,
        /// How many relays are known.
        known: usize,
    },
    /// Etcd answers again.
    EtcdUp {
        /// Which server of it.
        server: String,
        /// For how long none did.
        #[serde(rename = "seconds", serialize_with = "seconds")]
        duration: Duration,
    },
    /// Sessions to a network of targets take another path from now on.
    PathChanged {
        /// The network; none where the log leaves it out.
        prefix: Option<Prefix>,
        /// The size of the sessions that this is about, in bytes.
        likely_bytes: u64,
        /// Where most of these go: `down` or `up`.
        likely_direction: &'static str,
        /// The path before.
        from: String,
        /// The path now.
        to: String,
        /// Why, with the figures.
        why: String,
    },
    /// A new configuration is in force for new sessions.
    Reloaded {
        /// How many listeners there are now.
        listeners: usize,
    },
    /// A new configuration was not taken; the old one stays.
    ReloadRejected {
        /// Every mistake in it.
        mistakes: Vec<String>,
    },
    /// A new process serves from now on; this one lets its sessions finish.
    Upgraded {
        /// The new process.
        pid: u32,
        /// The version of its program.
        version: String,
    },
    /// The new process of an upgrade did not come to serve; this one goes on.
    UpgradeFailed {
        /// Why, in words.
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
        /// What the lines would have told: the word of an end, or an event.
        reason: &'static str,
        /// How many.
        lines: u64,
        /// In which time.
        #[serde(rename = "seconds", serialize_with = "seconds")]
        duration: Duration,
    },
    /// Something an operator should know, in words.
    Warning {
        /// One sentence, and the remedy where there is one.
        message: String,
    },
}

/// What became of a congestion control that a profile asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CongestionStatus {
    /// Its name.
    pub name: String,
    /// What sections really have.
    pub in_use: String,
    /// Who has put it into the kernel, in words; nothing when nobody could.
    pub from: Option<String>,
    /// Why it is not there, and the remedy.
    pub why: Option<String>,
}

impl CongestionStatus {
    /// Who comes with the kernel, as [`CongestionStatus::from`] has it.
    pub const KERNEL: &str = "kernel";

    /// Whether there is something to say: it is another one, or not the kernel's.
    #[must_use]
    pub fn is_worth_logging(&self) -> bool {
        self.name != self.in_use || self.from.as_deref() != Some(Self::KERNEL)
    }
}

/// A request that went through the HTTP forward proxy. Query strings and credentials are left out.
#[derive(Debug, Clone, Serialize)]
pub struct RequestCompleted {
    /// The session it came in.
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
