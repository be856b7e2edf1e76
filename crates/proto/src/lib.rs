//! The protocols and decisions of ekiden, as pure functions and values: bytes in, values out.
//!
//! Nothing here performs I/O, reads a clock, or uses `unsafe`, so every line can be tested and fuzzed without a socket.
//! [`wire`] holds the protocols, [`addr`] and [`units`] the vocabulary, [`profile`] the TCP settings of a section,
//! [`tuning`] their automatic adjustment, [`event`] the events of a relay, and [`aqm`] the arithmetic of queue
//! management.
#![forbid(unsafe_code)]

#[macro_use]
mod text;

pub mod addr;
pub mod aqm;
pub mod balance;
pub mod cause;
pub mod direction;
pub mod event;
pub mod fleet;
pub mod key;
pub mod limiting;
pub mod path;
pub mod profile;
pub mod quantity;
pub mod resume;
pub mod share;
pub mod tuning;
pub mod units;
pub mod wire;
