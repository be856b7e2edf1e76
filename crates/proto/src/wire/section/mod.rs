//! The section protocol, relay to relay: `docs/section-protocol.md` is its specification.
//!
//! Each side of a connection first sends a [`Hello`], in which a Noise handshake authenticates both sides ([`noise`]).
//! The connection is then idle, perhaps for minutes, until the dialling side sends an [`Open`], which begins a session.
//! The other side replies with an [`OpenAnswer`]. Both are records ([`record`]). The session's bytes follow: in the
//! clear, in records, or in chunks ([`chunk`]) if the connection carries another session afterwards. Datagrams are in
//! records, each with an address ([`datagram`]).

pub mod chunk;
pub mod datagram;
pub mod hello;
pub mod noise;
pub mod open;
pub mod reader;
pub mod record;
pub mod report;
#[cfg(test)]
mod tests;
pub mod tickets;

pub use hello::{Hello, Refusal, Versions};
pub use noise::{NoiseInitiator, NoiseResponder, TransportKeys};
pub use open::{Open, OpenAnswer, OpenFailure, Purpose, TraceId};
pub use record::RecordKey;
pub use tickets::{ResumptionTicket, TicketIssuer};
