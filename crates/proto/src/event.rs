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

/// An event of a relay, as logged and counted.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A listener is ready. With port 0 in the configuration, this event reports the port that the kernel chose.
    Listening {
        /// The name of the listener.
        listener: String,
        /// The protocol of clients: `auto`, `socks`, `http` or `tcp`.
        kind: &'static str,
        /// The address and port that the listener is bound to.
        address: SocketAddr,
    },
    /// A profile was applied to a socket of this listener or hop for the first time.
    ProfileApplied {
        /// The name of the listener or hop.
        place: String,
        /// The name of the profile.
        profile: String,
        /// The settings, each with its outcome.
        settings: Vec<AppliedSetting>,
    },
    /// A congestion control of a profile was loaded by ekiden, or replaced by another one.
    Congestion(CongestionStatus),
    /// One request through the HTTP forward proxy was answered.
    Request(Box<RequestCompleted>),
    /// A session has ended.
    Closed(Box<SessionClosed>),
    /// The relay stopped accepting connections for a while.
    AcceptPaused {
        /// The name of the listener.
        listener: String,
        /// The reason: `too_many_open_files`, `session_limit`, ...
        reason: &'static str,
    },
    /// The relay accepts connections again after a pause.
    AcceptResumed {
        /// The name of the listener.
        listener: String,
    },
    /// Connections that the listener could intercept bypass the relay.
    BypassBegan {
        /// The name of the listener.
        listener: String,
        /// The reason: `session_limit`, `client_limit`, `draining` or `failed`.
        reason: &'static str,
    },
    /// The listener intercepts connections again.
    BypassEnded {
        /// The name of the listener.
        listener: String,
        /// The reason of the bypass that has ended.
        reason: &'static str,
    },
    /// A next hop is unreachable; it is tried again with growing delays.
    RelayUnreachable {
        /// The name of the hop.
        relay: String,
        /// The cause of the failure.
        cause: Cause,
        /// Further details, in words; `None` if there are none.
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
    /// Relays joined the fleet, began to drain, or left.
    FleetChanged {
        /// Number of relays that accept sessions, including those of the configuration file.
        relays: usize,
        /// Relays that joined or returned.
        joined: Vec<String>,
        /// Relays that accept no further sessions.
        draining: Vec<String>,
        /// Relays that left the fleet.
        left: Vec<String>,
    },
    /// No etcd server answers; the last known fleet stays in use.
    EtcdUnreachable {
        /// The etcd server that was queried last.
        server: String,
        /// The error of the last query.
        detail: String,
        /// Number of relays in the last known fleet.
        known: usize,
    },
    /// The etcd of the fleet answers again.
    EtcdReachable {
        /// The server that answers.
        server: String,
        /// Time for which no etcd server answered.
        #[serde(rename = "seconds", serialize_with = "seconds")]
        duration: Duration,
    },
    /// Sessions to a network of targets take another path from now on.
    PathChanged {
        /// The network; `None` if the log omits networks.
        prefix: Option<Prefix>,
        /// The expected size of the sessions whose path changes, in bytes.
        likely_bytes: u64,
        /// The direction of most of these bytes: `down` or `up`.
        likely_direction: &'static str,
        /// The name of the former path.
        from: String,
        /// The name of the new path.
        to: String,
        /// The reason for the change, with figures.
        why: String,
    },
    /// A new configuration is in force for new sessions.
    Reloaded {
        /// Number of listeners in the new configuration.
        listeners: usize,
    },
    /// A new configuration was rejected; the old one stays.
    ReloadRejected {
        /// Every error in the configuration.
        mistakes: Vec<String>,
    },
    /// A new process accepts connections; this process only completes its sessions.
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
    /// The relay accepts no new sessions; open sessions may finish.
    Draining {
        /// Number of sessions that are still open.
        open: usize,
        /// Time until open sessions are aborted.
        #[serde(serialize_with = "seconds")]
        deadline: Duration,
    },
    /// The relay has stopped.
    Stopped {
        /// Number of sessions that were still open at the drain deadline.
        aborted: usize,
    },
    /// Log lines were suppressed, because an unauthenticated peer can cause any number of them.
    Suppressed {
        /// The reason that the suppressed lines have in common: an end of sessions, or an event.
        reason: &'static str,
        /// Number of suppressed lines.
        lines: u64,
        /// The time span of the suppressed lines.
        #[serde(rename = "seconds", serialize_with = "seconds")]
        duration: Duration,
    },
    /// A user or a listener has used up its quota. At most one event in each day or month.
    QuotaUsed {
        /// The owner of the quota: `user` or `listener`.
        scope: &'static str,
        /// The name of the user or listener; `None` if the log omits users.
        name: Option<String>,
        /// The quota, like `10GiB/day`.
        quota: String,
        /// The time at which the next period of the quota begins, in UTC (RFC 3339).
        until: String,
    },
    /// A condition that an operator should know.
    Warning {
        /// The condition as a sentence, with the remedy if there is one.
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
    /// Why the control is not loaded, and the remedy; `None` if it is loaded.
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
    /// Whether the request was sent over an idle upstream connection.
    pub reused: bool,
    /// Bytes toward the server, head and body.
    pub bytes_up: u64,
    /// Bytes toward the client, heads and body.
    pub bytes_down: u64,
    /// Time from the head of the request to the last byte of the response.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub duration: Duration,
}

fn seconds<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}

/// The reason for which a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// Both sides closed their direction after their last byte.
    Finished,
    /// The client reset its section.
    ResetByClient,
    /// The server or the next hop reset its section.
    ResetByServer,
    /// The client's section failed otherwise: keep-alive or user timeout, or no route.
    ClientLost,
    /// The section to the server or the next hop failed otherwise.
    ServerLost,
    /// A record of an encrypted section was altered, dropped, repeated or reordered. The direction is that of its
    /// bytes.
    Altered(Direction),
    /// No byte was transferred for the idle timeout.
    Idle,
    /// One side had closed its direction, and the other sent nothing for the half-close timeout.
    HalfCloseIdle,
    /// The client did not complete its handshake in time.
    HandshakeTimeout,
    /// The client used no protocol of the listener, or violated it.
    BadHandshake(&'static str),
    /// The client disconnected before its request was complete.
    LeftEarly,
    /// Wrong or missing credentials.
    Unauthenticated,
    /// Too many password checks of other clients were queued.
    Overloaded,
    /// The client was at its limit of concurrent sessions.
    ClientLimit,
    /// The target could not be reached.
    ConnectFailed(Cause),
    /// The quota of the user or of the listener was used up while the session ran.
    OverQuota,
    /// The session was aborted by the drain deadline at shutdown.
    Drained,
    /// The session panicked; the panic was contained. This is a defect of ekiden.
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

    /// Further details of the end that the word does not contain; `None` if there are none.
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

/// Kernel data of a section (`TCP_INFO`); counters begin with the session.
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
    /// Time in which the section had data to send.
    #[serde(rename = "busy_seconds", serialize_with = "seconds")]
    pub busy: Duration,
    /// Part of `busy` in which the peer's receive window limited the sender.
    #[serde(rename = "rwnd_limited_seconds", serialize_with = "seconds")]
    pub rwnd_limited: Duration,
    /// Part of `busy` in which the local send buffer limited the sender.
    #[serde(rename = "sndbuf_limited_seconds", serialize_with = "seconds")]
    pub sndbuf_limited: Duration,
    /// The state of the section at the start of the session.
    #[serde(flatten)]
    pub start: SectionStart,
}

impl SectionInfo {
    /// The data of a session that began when the section had the counters of `start`: the kernel counts from the start
    /// of the connection.
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

/// The path that the selector chose for a session: its reason, the prediction and the outcome.
#[derive(Debug, Clone, Serialize)]
pub struct ChoiceRecord {
    /// A word: `unmeasured`, `only`, `best`, `kept`, `explores` or `retreats`.
    pub reason: &'static str,
    /// The reason in words, with figures and the paths tried before.
    pub why: String,
    /// The expected size of the transfer, in bytes.
    pub likely_bytes: u64,
    /// The direction of most of these bytes: `down` or `up`.
    pub likely_direction: &'static str,
    /// Predicted time from the request to the last byte; after the transfer, the prediction for the actual size.
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
    /// The listener that accepted the session.
    pub listener: String,
    /// The client's address; `None` if the log omits addresses.
    pub client: Option<ClientAddr>,
    /// The version of TLS toward the client, if the listener speaks TLS.
    pub tls: Option<&'static str>,
    /// 2 if the session is a stream of an HTTP/2 connection, else `None`.
    pub http: Option<u8>,
    /// The user name, if the listener requires authentication.
    pub user: Option<String>,
    /// The relay that opened the session, by name or key; `None` for other clients.
    pub peer: Option<String>,
    /// The trace id, which all relays on the path share.
    pub trace: Option<TraceId>,
    /// The target; for HTTP, that of the last request.
    pub target: Option<Target>,
    /// The server name in the first bytes of an intercepted connection.
    pub server_name: Option<String>,
    /// The address that the relay connected to: that of the target or of the next hop.
    pub server: Option<ServerAddr>,
    /// Names of the hops, or `direct`.
    pub path: String,
    /// The choice of the path, if the selector made one.
    pub chosen: Option<Box<ChoiceRecord>>,
    /// The reason for the end.
    #[serde(serialize_with = "end_word")]
    pub end: EndReason,
    /// Details of the end: the error of a handshake, or the failed hop.
    pub detail: Option<String>,
    /// Time from accept to the end of the session.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub duration: Duration,
    /// Time from accept to the client's first request.
    #[serde(rename = "handshake_seconds", serialize_with = "optional_seconds")]
    pub handshake: Option<Duration>,
    /// Time from the client's request to the first byte sent to the client.
    #[serde(rename = "first_byte_seconds", serialize_with = "optional_seconds")]
    pub first_byte: Option<Duration>,
    /// Time from the client's request until the section to the server is ready.
    #[serde(rename = "connect_seconds", serialize_with = "optional_seconds")]
    pub connect: Option<Duration>,
    /// Time from OPEN to the answer at each further relay, the nearest first.
    #[serde(rename = "hops_seconds", serialize_with = "all_seconds")]
    pub hops: Vec<Duration>,
    /// Bytes toward the server.
    pub bytes_up: u64,
    /// Bytes toward the client.
    pub bytes_down: u64,
    /// Bytes of both directions that were spliced through a pipe, without a copy to user space.
    pub bytes_spliced: u64,
    /// The section to the client.
    pub down: Option<SectionInfo>,
    /// The section to the server.
    pub up: Option<SectionInfo>,
    /// The factor that limited the direction with more bytes.
    pub limited: Option<LimitingFactor>,
    /// The evidence for `limited`, in plain words with figures.
    pub limited_why: Option<String>,
}

impl SessionClosed {
    /// A record with a session number, a listener and a client; all other fields are empty.
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
