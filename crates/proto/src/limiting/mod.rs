//! Diagnosis of slow sessions: the limiting section and the reason, for each direction. The evidence is the kernel's
//! counters of both sections, the timers of the pump (time spent waiting for bytes to arrive, and for room to send),
//! and the run time of the relay's thread.
//!
//! [`LimitTracker`] takes a [`SessionSample`] at intervals and returns [`Diagnoses`]. docs/limiting-factor.md explains
//! the diagnoses and their limits.

mod account;
mod judge;
mod sums;

use std::fmt;

use serde::Serialize;

use super::direction::Direction;

pub use account::{FlowCounters, LimitTracker, SessionSample, SideSample};

/// The section or host that limits a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitingSection {
    /// The client's section, or the client.
    Down,
    /// The server's or the next hop's section, or the host behind it.
    Up,
    /// This relay itself, between the sections.
    Relay,
}

impl From<Direction> for LimitingSection {
    /// The section that sends the bytes of a direction.
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Down => Self::Down,
            Direction::Up => Self::Up,
        }
    }
}

/// The kind of limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The program at the client reads or writes slowly.
    ClientSlow,
    /// The server, or the host behind the next hop, is slow.
    ServerSlow,
    /// A receive window is full in every round trip.
    Window,
    /// The relay's send buffer is too small for the path.
    SendBuffer,
    /// Losses keep the congestion window down.
    Loss,
    /// The congestion window is still in slow start.
    SlowStart,
    /// The rate of the path: its bottleneck or its losses.
    PathRate,
    /// The relay's thread gets too little CPU time.
    RelayCpu,
    /// The relay paces the section: by its share of an interface, or by the profile's `pacing`.
    Share,
    /// The rate limit of the user or of the listener at this relay.
    RateLimit,
}

impl Bottleneck {
    /// The word used in logs and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClientSlow => "client_slow",
            Self::ServerSlow => "server_slow",
            Self::Window => "window",
            Self::SendBuffer => "send_buffer",
            Self::Loss => "loss",
            Self::SlowStart => "slow_start",
            Self::PathRate => "path_rate",
            Self::RelayCpu => "relay_cpu",
            Self::Share => "share",
            Self::RateLimit => "rate_limit",
        }
    }

    /// The bottleneck for a slow program at the other end of `section`.
    const fn slow_peer(section: Direction) -> Self {
        match section {
            Direction::Down => Self::ClientSlow,
            Direction::Up => Self::ServerSlow,
        }
    }
}

/// The limit of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitingFactor {
    /// The section that limits.
    pub section: LimitingSection,
    /// The kind of limit.
    pub by: Bottleneck,
}

impl fmt::Display for LimitingFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let section = match self.section {
            LimitingSection::Down => "down",
            LimitingSection::Up => "up",
            LimitingSection::Relay => "relay",
        };
        write!(f, "{section}:{}", self.by.as_str())
    }
}

serialize_as_text!(LimitingFactor);

/// A limit with its reason in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The section that limits.
    pub section: LimitingSection,
    /// The kind of limit.
    pub by: Bottleneck,
    /// The evidence in plain words, with figures.
    pub why: String,
}

impl Diagnosis {
    /// The limit without its reason.
    #[must_use]
    pub const fn factor(&self) -> LimitingFactor {
        LimitingFactor { section: self.section, by: self.by }
    }
}

/// The limits of a session in both directions; `None` if too few bytes were transferred.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Diagnoses {
    /// The limit of the bytes toward the client.
    pub down: Option<Diagnosis>,
    /// The limit of the bytes toward the server.
    pub up: Option<Diagnosis>,
}

#[cfg(test)]
mod tests;
