//! What relays find out about sections, and tell each other: real relays, real sessions, and what `/api/paths` says then.
//!
//! `known` reads that; every other module is one question.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
#[allow(dead_code, reason = "not every test file starts chains")]
#[path = "../sections/relays.rs"]
mod relays;

mod known;

mod budget;
mod history;
mod trouble;
