//! The events of a relay. The log, the metrics, `ekiden status` and the tests read the same events, so they cannot
//! disagree. Every session ends in exactly one [`Event::Closed`], with the reason and all figures of the session.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::addr::{ClientAddr, ServerAddr, Target};
use super::cause::Cause;
use super::direction::Direction;
use super::limiting::LimitingFactor;
use super::path::prefix::Prefix;
use super::profile::AppliedSetting;
use super::resume::SectionStart;
use super::wire::section::TraceId;

/// Something that happened in a relay.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A listener is ready; with port 0 in the configuration this is how to learn the port.
    Listening {
        /// The name of the listener.
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
        /// The name of the profile.
        profile: String,
        /// The settings with their outcomes.
        settings: Vec<AppliedSetting>,
    },
    /// A congestion control of a profile was loaded by ekiden, or replaced by another one.
    Congestion(CongestionStatus),
    /// One request through the HTTP forward proxy was answered.
    Request(Box<RequestCompleted>),
    /// A session has ended.
    Closed(Box<SessionClosed>),
    /// Accepting stopped for a while.
    AcceptPaused {
        /// The name of the listener.
        listener: String,
        /// Why: `too_many_open_files`, `session_limit`, ...
        reason: &'static str,
    },
    /// Accepting went on after a pause.
    AcceptResumed {
        /// The name of the listener.
        listener: String,
    },
    /// Connections that could be ours go on without us.
    BypassBegan {
        /// The name of the listener.
        listener: String,
        /// Why: `session_limit`, `client_limit`, `draining` or `failed`.
        reason: &'static str,
    },
    /// They are ours again.
    BypassEnded {
        /// The name of the listener.
        listener: String,
        /// Why they were not.
        reason: &'static str,
    },
    /// A next hop is unreachable; it is tried again with growing delays.
    RelayUnreachable {
        /// The name of the hop.
        relay: String,
        /// The cause of the failure.
        cause: Cause,
        /// Further details, in words.
        detail: Option<String>,
    },
    /// A next hop is reachable again.
    RelayReachable {
        /// The name of the hop.
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
        /// The relays that left the fleet.
        left: Vec<String>,
    },
    /// No server of etcd answers; the last known fleet stays.
    EtcdUnreachable {
        /// The server that was asked last.
        server: String,
        /// The error of etcd.
        detail: String,
        /// How many relays are known.
        known: usize,
    },
    /// The etcd of the fleet answers again.
    EtcdReachable {
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
        /// The name of the former path.
        from: String,
        /// The name of the new path.
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
        /// Sessions that are still open.
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
    /// A user or a listener has used up its quota. Once in each day or month.
    QuotaUsed {
        /// The owner of the quota: `user` or `listener`.
        scope: &'static str,
        /// Its name; `None` if the log omits users.
        name: Option<String>,
        /// The quota, like `10GiB/day`.
        quota: String,
        /// When it begins anew, in UTC (RFC 3339).
        until: String,
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
    /// The congestion control that the configuration names.
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
    /// The method: GET, POST, and so on.
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

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// Both sides said all they had.
    Finished,
    /// The client reset its section.
    ResetByClient,
    /// The server or the next hop reset its section.
    ResetByServer,
    /// The client's section died in another way: keep-alive or user timeout, route gone.
    ClientLost,
    /// The server's section died in another way.
    ServerLost,
    /// A record of an encrypted section was altered, dropped, repeated or reordered. The direction is that of its
    /// bytes.
    Altered(Direction),
    /// Nothing moved for the idle time.
    Idle,
    /// One side had closed, and the other was silent for the half-close timeout.
    HalfCloseIdle,
    /// The client did not complete its handshake in time.
    HandshakeTimeout,
    /// The client spoke no protocol of the listener, or violated it.
    BadHandshake(&'static str),
    /// The client disconnected before its request was complete.
    LeftEarly,
    /// Wrong or missing credentials.
    Unauthenticated,
    /// Too many other passwords had to be checked first.
    Overloaded,
    /// The client had too many sessions.
    ClientLimit,
    /// The target could not be reached.
    ConnectFailed(Cause),
    /// The quota of the user or of the listener was used up while the session ran.
    OverQuota,
    /// Cut off by the drain deadline at shutdown.
    Drained,
    /// A defect of ekiden itself: the session panicked and was contained.
    Panicked,
}

impl EndReason {
    /// The word used in logs and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::ResetByClient => "reset_by_client",
            Self::ResetByServer => "reset_by_server",
            Self::ClientLost => "client_lost",
            Self::ServerLost => "server_lost",
            Self::Altered(_) => "altered",
            Self::Idle => "idle",
            Self::HalfCloseIdle => "half_close_idle",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::BadHandshake(_) => "bad_handshake",
            Self::LeftEarly => "left_early",
            Self::Unauthenticated => "unauthenticated",
            Self::Overloaded => "overloaded",
            Self::ClientLimit => "client_limit",
            Self::ConnectFailed(cause) => cause.as_str(),
            Self::OverQuota => "over_quota",
            Self::Drained => "drained",
            Self::Panicked => "panicked",
        }
    }

    /// More than the word says, where there is more.
    #[must_use]
    pub const fn detail(self) -> Option<&'static str> {
        match self {
            Self::BadHandshake(why) => Some(why),
            Self::Overloaded => Some("too many password checks were waiting"),
            Self::Altered(Direction::Up) => Some("a record from the client's side was altered in transit"),
            Self::Altered(Direction::Down) => Some("a record from the server's side was altered in transit"),
            _ => None,
        }
    }
}

/// Kernel data of a section (`TCP_INFO`), counted from the start of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SectionInfo {
    /// Smoothed round-trip time (RFC 6298).
    #[serde(rename = "rtt_seconds", serialize_with = "seconds")]
    pub rtt: Duration,
    /// Smallest round-trip time seen.
    #[serde(rename = "min_rtt_seconds", serialize_with = "seconds")]
    pub min_rtt: Duration,
    /// Retransmitted segments so far.
    pub retransmitted: u32,
    /// Sent segments, retransmissions included.
    pub segments_out: u32,
    /// Delivery rate of the newest sample, in bytes per second.
    pub delivery_rate: u64,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Time with data to send.
    #[serde(rename = "busy_seconds", serialize_with = "seconds")]
    pub busy: Duration,
    /// Part of `busy` in which the peer's receive window held us back.
    #[serde(rename = "rwnd_limited_seconds", serialize_with = "seconds")]
    pub rwnd_limited: Duration,
    /// Part of `busy` in which our send buffer held us back.
    #[serde(rename = "sndbuf_limited_seconds", serialize_with = "seconds")]
    pub sndbuf_limited: Duration,
    /// How the section began the session.
    #[serde(flatten)]
    pub start: SectionStart,
}

impl SectionInfo {
    /// The data of a session that began at `start`: the counters of the kernel are those of the connection.
    #[must_use]
    pub fn since(self, start: &Self) -> Self {
        Self {
            retransmitted: self.retransmitted.saturating_sub(start.retransmitted),
            segments_out: self.segments_out.saturating_sub(start.segments_out),
            busy: self.busy.saturating_sub(start.busy),
            rwnd_limited: self.rwnd_limited.saturating_sub(start.rwnd_limited),
            sndbuf_limited: self.sndbuf_limited.saturating_sub(start.sndbuf_limited),
            start: start.start,
            ..self
        }
    }

    /// The data of a session whose earlier sections on this side had the counters of `earlier`.
    #[must_use]
    pub fn after(self, earlier: &Self) -> Self {
        Self {
            retransmitted: self.retransmitted.saturating_add(earlier.retransmitted),
            segments_out: self.segments_out.saturating_add(earlier.segments_out),
            busy: self.busy + earlier.busy,
            rwnd_limited: self.rwnd_limited + earlier.rwnd_limited,
            sndbuf_limited: self.sndbuf_limited + earlier.sndbuf_limited,
            start: earlier.start,
            ..self
        }
    }
}

/// The reason for a path, the prediction and the outcome.
#[derive(Debug, Clone, Serialize)]
pub struct ChoiceRecord {
    /// A word: `unmeasured`, `only`, `best`, `kept`, `explores` or `retreats`.
    pub reason: &'static str,
    /// The reason in words, with figures and the paths tried before.
    pub why: String,
    /// The expected size of the transfer.
    pub likely_bytes: u64,
    /// And where: `down` or `up`.
    pub likely_direction: &'static str,
    /// Predicted time from the request to the last byte; for the actual size, once that is known.
    #[serde(rename = "predicted_seconds", serialize_with = "optional_seconds")]
    pub predicted: Option<Duration>,
    /// Measured time from the request to the last byte.
    #[serde(rename = "took_seconds", serialize_with = "optional_seconds")]
    pub took: Option<Duration>,
}

/// The closing event of a session: its access-log line.
#[derive(Debug, Clone, Serialize)]
pub struct SessionClosed {
    /// Number of the session, unique in one process.
    pub session: u64,
    /// The listener that accepted it.
    pub listener: String,
    /// The client's address; `None` if the log omits addresses.
    pub client: Option<ClientAddr>,
    /// The version of TLS toward the client, if the listener speaks TLS.
    pub tls: Option<&'static str>,
    /// 2 if the session is a stream of an HTTP/2 connection.
    pub http: Option<u8>,
    /// The user name, if the listener asks for one.
    pub user: Option<String>,
    /// The relay that opened it, by name or key.
    pub peer: Option<String>,
    /// The trace id, which all relays on the path share.
    pub trace: Option<TraceId>,
    /// The target; for HTTP, that of the last request.
    pub target: Option<Target>,
    /// The name of the server in the first bytes of an intercepted client.
    pub server_name: Option<String>,
    /// The dialled address: the target or the next hop.
    pub server: Option<ServerAddr>,
    /// Names of the hops, or `direct`.
    pub path: String,
    /// The reason for the path, if the selector has chosen it.
    pub chosen: Option<Box<ChoiceRecord>>,
    /// The reason for the end.
    #[serde(serialize_with = "end_word")]
    pub end: EndReason,
    /// Details of the end: the error of a handshake, or the failed hop.
    pub detail: Option<String>,
    /// From accept to the end.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub duration: Duration,
    /// Time from accept to the client's first request.
    #[serde(rename = "handshake_seconds", serialize_with = "optional_seconds")]
    pub handshake: Option<Duration>,
    /// From the client's request to the first byte for the client.
    #[serde(rename = "first_byte_seconds", serialize_with = "optional_seconds")]
    pub first_byte: Option<Duration>,
    /// From the client's request to the server's section being ready.
    #[serde(rename = "connect_seconds", serialize_with = "optional_seconds")]
    pub connect: Option<Duration>,
    /// Time from OPEN to the answer at each further relay, the nearest first.
    #[serde(rename = "hops_seconds", serialize_with = "all_seconds")]
    pub hops: Vec<Duration>,
    /// Bytes toward the server.
    pub bytes_up: u64,
    /// Bytes toward the client.
    pub bytes_down: u64,
    /// How many of both went through a pipe and were never copied.
    pub bytes_spliced: u64,
    /// The section to the client.
    pub down: Option<SectionInfo>,
    /// The section to the server.
    pub up: Option<SectionInfo>,
    /// The limit in the direction with more bytes.
    pub limited: Option<LimitingFactor>,
    /// Why that, in plain words with figures.
    pub limited_why: Option<String>,
}

impl SessionClosed {
    /// A record with a client and a listener only.
    #[must_use]
    pub fn new(session: u64, listener: String, client: ClientAddr) -> Self {
        Self {
            session,
            listener,
            client: Some(client),
            tls: None,
            http: None,
            user: None,
            peer: None,
            trace: None,
            target: None,
            server_name: None,
            server: None,
            path: "-".to_owned(),
            chosen: None,
            end: EndReason::LeftEarly,
            detail: None,
            duration: Duration::ZERO,
            handshake: None,
            first_byte: None,
            connect: None,
            hops: Vec::new(),
            bytes_up: 0,
            bytes_down: 0,
            bytes_spliced: 0,
            down: None,
            up: None,
            limited: None,
            limited_why: None,
        }
    }
}

fn optional_seconds<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match span {
        Some(span) => seconds(span, serializer),
        None => serializer.serialize_none(),
    }
}

fn all_seconds<S: Serializer>(spans: &[Duration], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(spans.iter().map(Duration::as_secs_f64))
}

fn end_word<S: Serializer>(end: &EndReason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(end.as_str())
}
