//! The answer of `/api/sessions`, with the fields that are shown. Nearly all fields are optional, so that the relay may
//! be older or newer than this program.

use serde::Deserialize;

/// An answer of `/api/sessions`.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct SessionsResponse {
    #[serde(default)]
    pub version: String,
    pub pipes_open: Option<u64>,
    pub pipes_idle: Option<u64>,
    /// The open sessions. This field is required: an answer without it is not from a relay.
    pub sessions: Vec<Session>,
    #[serde(default)]
    pub pools: Vec<Pool>,
}

/// The direction in which bytes flow, or in which a section leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Toward the client of the session.
    Down,
    /// Toward the server of the session.
    Up,
}

/// Both directions in the order of all pairs in this crate.
pub const DIRECTIONS: [Direction; 2] = [Direction::Down, Direction::Up];

/// An open session of the relay.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Session {
    pub session: u64,
    #[serde(default)]
    pub client: String,
    pub listener: Option<String>,
    pub user: Option<String>,
    pub peer: Option<String>,
    pub trace: Option<String>,
    pub target: Option<String>,
    pub server: Option<String>,
    pub path: Option<String>,
    pub chosen: Option<ChosenPath>,
    /// Age by the relay's clock, in seconds.
    #[serde(default)]
    pub seconds: f64,
    #[serde(default)]
    pub bytes_up: u64,
    #[serde(default)]
    pub bytes_down: u64,
    pub down: Option<Section>,
    pub up: Option<Section>,
    pub limits: Option<Limits>,
}

/// One section: figures of the kernel, and values that the relay derives from them.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Section {
    pub congestion: Option<String>,
    pub rtt_seconds: Option<f64>,
    pub base_rtt_seconds: Option<f64>,
    /// Congestion window in packets.
    pub window: Option<u64>,
    /// Packets in queues on the network path.
    pub queued: Option<u64>,
    pub retransmitted: Option<u64>,
    pub segments_out: Option<u64>,
    /// Delivery rate in bytes per second.
    pub delivery_rate: Option<u64>,
    pub busy_seconds: Option<f64>,
    pub rwnd_limited_seconds: Option<f64>,
    pub sndbuf_limited_seconds: Option<f64>,
    /// The start of the section: `cold`, `resumed` or `reused`. The word is shown unchanged.
    pub start: Option<String>,
    /// Sessions that the section has carried before this one.
    pub earlier_sessions: Option<u64>,
    /// The jump of careful resume, if the session requested one.
    pub jump: Option<Jump>,
}

/// Bytes that were sent at once, and the outcome. The word is shown unchanged.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Jump {
    #[serde(default)]
    pub bytes: u64,
    #[serde(default)]
    pub outcome: String,
}

/// The limiting factor of each direction.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Limits {
    pub down: Option<Limit>,
    pub up: Option<Limit>,
}

/// The limiting section, the cause, and a sentence that explains it. All words are shown unchanged.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Limit {
    pub section: String,
    pub by: String,
    #[serde(default)]
    pub why: String,
}

/// The reason why the relay chose the session's path.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct ChosenPath {
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub why: String,
}

/// The pool of ready connections to one next relay.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Pool {
    #[serde(default)]
    pub relay: String,
    #[serde(default)]
    pub up: bool,
    #[serde(default)]
    pub ready: u64,
    #[serde(default)]
    pub wanted: u64,
}

impl SessionsResponse {
    /// Parses the JSON text of an answer.
    ///
    /// # Errors
    /// Returns a description if the text is not an answer of a relay.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("the answer is not that of a relay ({error})"))
    }
}

impl Session {
    /// Returns the bytes transferred in this direction.
    pub fn bytes(&self, side: Direction) -> u64 {
        match side {
            Direction::Down => self.bytes_down,
            Direction::Up => self.bytes_up,
        }
    }

    /// Returns the section in this direction.
    pub fn section(&self, side: Direction) -> Option<&Section> {
        match side {
            Direction::Down => self.down.as_ref(),
            Direction::Up => self.up.as_ref(),
        }
    }

    /// Returns the factor that limits this direction.
    pub fn limit(&self, side: Direction) -> Option<&Limit> {
        let limits = self.limits.as_ref()?;
        match side {
            Direction::Down => limits.down.as_ref(),
            Direction::Up => limits.up.as_ref(),
        }
    }
}

impl Section {
    /// Returns the start with the number of earlier sessions, as in `reused 3 times`.
    pub fn start_text(&self) -> Option<String> {
        let start = self.start.clone()?;
        Some(match self.earlier_sessions.unwrap_or(0) {
            0 => start,
            1 => format!("{start} once"),
            earlier => format!("{start} {earlier} times"),
        })
    }
}

impl Limit {
    /// Returns `SECTION:CAUSE`, as in the access log.
    pub fn factor(&self) -> String {
        format!("{}:{}", self.section, self.by)
    }
}
