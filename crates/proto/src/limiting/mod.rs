//! Why was it slow, and on which section? Answered for each direction of bytes from what the kernel knows of both sections,
//! the clocks of the pump (waiting for bytes to arrive, waiting for room to send), and those of the relay's thread.
//!
//! [`Account`] takes a [`Look`] now and then, and answers. docs/limiting-factor.md says what the answers mean, and what they
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

pub use account::{Account, Clocks, Look, Side};

/// Where it was held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Culprit {
    /// The client's section, and who is at its other end.
    Down,
    /// The same of the server's, or the next hop's.
    Up,
    /// This relay.
    Relay,
}

impl From<Direction> for Culprit {
    /// The section that sends the bytes of a direction.
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Down => Self::Down,
            Direction::Up => Self::Up,
        }
    }
}

/// What held it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The program at the client reads, or writes, slowly.
    ClientSlow,
    /// The same at the server, or whoever is behind the next hop.
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
    /// We pace the section ourselves: its share of an interface, or its profile's `pacing`.
    Share,
}

impl Bottleneck {
    /// The word used in logs and metric labels.
    #[must_use]
    pub const fn word(self) -> &'static str {
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
    const fn slow(section: Direction) -> Self {
        match section {
            Direction::Down => Self::ClientSlow,
            Direction::Up => Self::ServerSlow,
        }
    }
}

/// What held a direction of bytes back, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limited {
    /// Where.
    pub section: Culprit,
    /// By what.
    pub by: Bottleneck,
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let section = match self.section {
            Culprit::Down => "down",
            Culprit::Up => "up",
            Culprit::Relay => "relay",
        };
        write!(f, "{section}:{}", self.by.word())
    }
}

serialize_as_text!(Limited);

/// The same with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// Where.
    pub section: Culprit,
    /// By what.
    pub by: Bottleneck,
    /// In plain words, with figures.
    pub why: String,
}

impl Limit {
    /// Without the reason.
    #[must_use]
    pub const fn limited(&self) -> Limited {
        Limited { section: self.section, by: self.by }
    }
}

/// What holds a session back, for each direction of bytes; nothing where too little has moved to tell.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Limits {
    /// Bytes toward the client.
    pub down: Option<Limit>,
    /// Bytes toward the server.
    pub up: Option<Limit>,
}

#[cfg(test)]
mod tests;
