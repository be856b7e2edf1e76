//! Why was it slow, and on which section? Answered for each direction of bytes from what the kernel knows of both sections,
//! the clocks of the pump (waiting for bytes to arrive, waiting for room to send), and those of the relay's thread.
//!
//! [`LimitTracker`] takes a [`SessionSample`] now and then, and answers. docs/limiting-factor.md says what the answers mean, and what they
//! cannot tell.

mod account;
mod figures;
mod judge;
mod receiving;
mod seen;
mod sending;

use std::fmt;

use serde::Serialize;

use crate::direction::Direction;

pub use account::{FlowCounters, LimitTracker, SessionSample, SideSample};

/// The section or host that limits a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitingSection {
    /// The client's section, or the client.
    Down,
    /// The server's or the next hop's section, or the host behind it.
    Up,
    /// This relay.
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
    /// The program at the client reads, or writes, slowly.
    ClientSlow,
    /// The server, or the host behind the next hop, is slow.
    ServerSlow,
    /// A receive window is full in every round trip.
    Window,
    /// Our send buffer is too small for the path.
    SendBuffer,
    /// Losses keep the congestion window down.
    Loss,
    /// The path's rate.
    PathRate,
    /// This relay has too little of a processor.
    RelayCpu,
    /// The relay paces the section: by its share of an interface, or by the profile's `pacing`.
    Share,
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
            Self::PathRate => "path_rate",
            Self::RelayCpu => "relay_cpu",
            Self::Share => "share",
        }
    }

    /// The program at the other end of a section.
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
    /// The limiting section.
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
    /// The limiting section.
    pub section: LimitingSection,
    /// The kind of limit.
    pub by: Bottleneck,
    /// In plain words, with figures.
    pub why: String,
}

impl Diagnosis {
    /// The limit without its reason.
    #[must_use]
    pub const fn factor(&self) -> LimitingFactor {
        LimitingFactor { section: self.section, by: self.by }
    }
}

/// The limits of a session in both directions; `None` where too few bytes have moved.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Diagnoses {
    /// Bytes toward the client.
    pub down: Option<Diagnosis>,
    /// Bytes toward the server.
    pub up: Option<Diagnosis>,
}

#[cfg(test)]
mod tests;
