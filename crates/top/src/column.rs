//! The columns of the table: names, headings, cell texts and sort order.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::amount;
use crate::answer::{Direction, Section};
use crate::live::LiveSession;

/// A column of the table, and also a sort key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Session number of the relay.
    Session,
    /// Address of the client.
    Client,
    /// Name of the user, or of the relay that forwarded the session.
    User,
    /// Host and port that the client requested.
    Target,
    /// Name of the path, or `direct`.
    Path,
    /// Time since the session began.
    Age,
    /// Current rate in bit/s.
    Rate(Direction),
    /// Bytes transferred so far.
    Bytes(Direction),
    /// Round-trip time of a section.
    Rtt(Direction),
    /// Packets of a section that wait in queues on its network path.
    Queued(Direction),
    /// Segments that a section has retransmitted.
    Retransmitted(Direction),
    /// Congestion window of a section in packets.
    Window(Direction),
    /// Start of a section: `cold`, `resumed` or `reused`.
    Start(Direction),
    /// The factor that limits the faster direction.
    Limited,
}

use Column::{
    Age, Bytes, Client, Limited, Path, Queued, Rate, Retransmitted, Rtt, Session, Start, Target, User, Window,
};
use Direction::{Down, Up};

/// All columns from left to right.
pub const COLUMNS: [Column; 21] = [
    Session,
    Client,
    User,
    Target,
    Path,
    Age,
    Rate(Down),
    Rate(Up),
    Bytes(Down),
    Bytes(Up),
    Rtt(Down),
    Rtt(Up),
    Queued(Down),
    Queued(Up),
    Retransmitted(Down),
    Retransmitted(Up),
    Window(Down),
    Window(Up),
    Start(Down),
    Start(Up),
    Limited,
];

/// The value of a cell, by which rows are also sorted.
enum CellValue<'a> {
    Number(f64),
    Text(&'a str),
    Owned(String),
    None,
}

impl Column {
    /// Returns the name of the column for `--sort`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Session => "session",
            Client => "client",
            User => "user",
            Target => "target",
            Path => "path",
            Age => "age",
            Rate(Down) => "down",
            Rate(Up) => "up",
            Bytes(Down) => "bytes-down",
            Bytes(Up) => "bytes-up",
            Rtt(Down) => "rtt-down",
            Rtt(Up) => "rtt-up",
            Queued(Down) => "queued-down",
            Queued(Up) => "queued-up",
            Retransmitted(Down) => "retrans-down",
            Retransmitted(Up) => "retrans-up",
            Window(Down) => "window-down",
            Window(Up) => "window-up",
            Start(Down) => "start-down",
            Start(Up) => "start-up",
            Limited => "limited",
        }
    }

    /// Returns the heading that a column shares with the column of the other direction.
    pub(crate) fn group(self) -> &'static str {
        match self {
            Rate(_) => "bit/s",
            Bytes(_) => "bytes",
            Rtt(_) => "RTT ms",
            Queued(_) => "queued",
            Retransmitted(_) => "retrans",
            Window(_) => "window",
            Start(_) => "start",
            _ => "",
        }
    }

    pub(crate) fn heading(self) -> &'static str {
        match self {
            Session => "SESSION",
            Client => "CLIENT",
            User => "USER",
            Target => "TARGET",
            Path => "PATH",
            Age => "AGE",
            Limited => "LIMITED BY",
            Rate(side) | Bytes(side) | Rtt(side) | Queued(side) | Retransmitted(side) | Window(side) | Start(side) => {
                match side {
                    Down => "DOWN",
                    Up => "UP",
                }
            }
        }
    }

    /// Returns whether cells contain text. Text is left-aligned, and its initial order is from A to Z.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Client | User | Target | Path | Start(_) | Limited)
    }

    /// Returns the cell text of a session, `-` for an unknown value.
    pub(crate) fn text(self, running: &LiveSession) -> String {
        match (self, self.value(running)) {
            (_, CellValue::None) => "-".to_owned(),
            (_, CellValue::Text(text)) => text.to_owned(),
            (_, CellValue::Owned(text)) => text,
            (Session, CellValue::Number(number)) => format!("{number:.0}"),
            (Age, CellValue::Number(seconds)) => amount::age(seconds),
            (Rtt(_), CellValue::Number(seconds)) => amount::milliseconds(seconds),
            (Bytes(side), CellValue::Number(_)) => amount::bytes(running.session.bytes(side)),
            (_, CellValue::Number(value)) => amount::short(value),
        }
    }

    /// Compares two sessions by this column. Unknown values come last in both directions.
    pub(crate) fn compare(self, descending: bool, one: &LiveSession, other: &LiveSession) -> Ordering {
        let order = match (self.value(one), self.value(other)) {
            (CellValue::None, CellValue::None) => Ordering::Equal,
            (CellValue::None, _) => return Ordering::Greater,
            (_, CellValue::None) => return Ordering::Less,
            (CellValue::Number(one), CellValue::Number(other)) => one.total_cmp(&other),
            (one, other) => one.as_text().cmp(other.as_text()),
        };
        if descending { order.reverse() } else { order }
    }

    fn value(self, running: &LiveSession) -> CellValue<'_> {
        let session = &running.session;
        let of = |side, pick: fn(&Section) -> Option<f64>| number_value(session.section(side).and_then(pick));
        match self {
            Session => CellValue::Number(session.session as f64),
            Client => CellValue::Text(&session.client),
            User => text_value(session.user.as_deref().or(session.peer.as_deref())),
            Target => text_value(session.target.as_deref()),
            Path => text_value(session.path.as_deref()),
            Age => CellValue::Number(session.seconds),
            Rate(side) => number_value(running.rate(side)),
            Bytes(side) => CellValue::Number(session.bytes(side) as f64),
            Rtt(side) => of(side, |section| section.rtt_seconds),
            Queued(side) => of(side, |section| section.queued.map(|packets| packets as f64)),
            Retransmitted(side) => of(side, |section| section.retransmitted.map(|segments| segments as f64)),
            Window(side) => of(side, |section| section.window.map(|packets| packets as f64)),
            Start(side) => text_value(session.section(side).and_then(|section| section.start.as_deref())),
            Limited => running.limit().map_or(CellValue::None, |limit| CellValue::Owned(limit.factor())),
        }
    }
}

impl CellValue<'_> {
    fn as_text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Owned(text) => text,
            Self::Number(_) | Self::None => "",
        }
    }
}

fn text_value(text: Option<&str>) -> CellValue<'_> {
    text.map_or(CellValue::None, CellValue::Text)
}

fn number_value<'a>(number: Option<f64>) -> CellValue<'a> {
    number.map_or(CellValue::None, CellValue::Number)
}

/// No column has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {}", names())]
pub struct UnknownColumn;

/// Returns all names, with commas. `join` over this constant array takes LLVM 22 minutes to optimise.
fn names() -> String {
    let mut names = COLUMNS[0].name().to_owned();
    for column in &COLUMNS[1..] {
        names += ", ";
        names += column.name();
    }
    names
}

impl FromStr for Column {
    type Err = UnknownColumn;
    fn from_str(text: &str) -> Result<Self, UnknownColumn> {
        COLUMNS.into_iter().find(|column| column.name() == text).ok_or(UnknownColumn)
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
