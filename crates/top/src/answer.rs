//! The answer of `/api/sessions`, as far as it is shown. What is not in it is shown as absent, so that a relay may be
//! older or newer than who watches it.

use serde::Deserialize;

/// What a relay tells.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct SessionsResponse {
    #[serde(default)]
    pub version: String,
    pub pipes_open: Option<u64>,
    pub pipes_idle: Option<u64>,
    /// Its sessions; what has none of that name is no answer of a relay.
    pub sessions: Vec<Session>,
    #[serde(default)]
    pub pools: Vec<Pool>,
}

/// Of bytes where they go, of a section where it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Toward the client.
    Down,
    /// Toward the server.
    Up,
}

/// Both, in the order in which pairs are kept and shown.
pub const DIRECTIONS: [Direction; 2] = [Direction::Down, Direction::Up];

/// One session.
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

/// One section: as the kernel counts, and what is made of it.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Section {
    pub congestion: Option<String>,
    pub rtt_seconds: Option<f64>,
    pub base_rtt_seconds: Option<f64>,
    /// Packets.
    pub window: Option<u64>,
    /// Packets.
    pub queued: Option<u64>,
    pub retransmitted: Option<u64>,
    pub segments_out: Option<u64>,
    /// Bytes a second.
    pub delivery_rate: Option<u64>,
    pub busy_seconds: Option<f64>,
    pub rwnd_limited_seconds: Option<f64>,
    pub sndbuf_limited_seconds: Option<f64>,
}

/// What limits each direction of bytes.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Limits {
    pub down: Option<Limit>,
    pub up: Option<Limit>,
}

/// Which section limits, by what, and a sentence. The words are shown as they come.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Limit {
    pub section: String,
    pub by: String,
    #[serde(default)]
    pub why: String,
}

/// Why a session took its path.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct ChosenPath {
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub why: String,
}

/// The pool of one next relay.
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
    /// Reads what was answered.
    ///
    /// # Errors
    /// In words, when it is not what a relay answers.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("the answer is not of a relay ({error})"))
    }
}

impl Session {
    /// Bytes that went there.
    pub fn bytes(&self, side: Direction) -> u64 {
        match side {
            Direction::Down => self.bytes_down,
            Direction::Up => self.bytes_up,
        }
    }

    /// The section that leads there.
    pub fn section(&self, side: Direction) -> Option<&Section> {
        match side {
            Direction::Down => self.down.as_ref(),
            Direction::Up => self.up.as_ref(),
        }
    }

    /// What limits the bytes that go there.
    pub fn limit(&self, side: Direction) -> Option<&Limit> {
        let limits = self.limits.as_ref()?;
        match side {
            Direction::Down => limits.down.as_ref(),
            Direction::Up => limits.up.as_ref(),
        }
    }
}

impl Limit {
    /// `SECTION:WORD`, as in the access log.
    pub fn factor(&self) -> String {
        format!("{}:{}", self.section, self.by)
    }
}
