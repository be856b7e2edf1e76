//! The section protocol, relay to relay: `docs/section-protocol.md` is its specification.
//!
//! A connection begins with a [`Hello`] each way, in which a Noise handshake authenticates both sides ([`noise`]). Then
//! it waits, perhaps for minutes, until the dialling side sends an [`Open`]: the beginning of one session. The other
//! side replies with an [`OpenAnswer`]. Both are records ([`record`]); the session's bytes follow: in the clear, in
//! records, or in chunks ([`chunk`]) if the connection carries another session afterwards. Datagrams are in records, each with an
//! address ([`datagram`]).

pub mod again;
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

pub use again::{ResumptionTicket, TicketIssuer};
pub use hello::{Hello, Refusal, Versions};
pub use noise::{NoiseInitiator, NoiseResponder, TransportKeys};
pub use open::{Open, OpenAnswer, OpenFailure, Purpose, TraceId};
pub use record::RecordKey;
