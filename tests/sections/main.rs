//! The section protocol as operators, clients and attackers use it: chains of real relays, with sockets of the tests as
//! clients, as servers and between relays.
//!
//! `relays` starts chains, `interceptor` records and changes messages between relays, and `streams` has operations on
//! sockets; every other module covers one topic.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;

mod interceptor;
mod relays;
mod streams;

mod admission;
mod chains;
mod clocks;
mod end_of_stream;
mod errors;
mod hostile;
mod keys;
mod killed;
mod peers;
mod pools;
mod recipe;
mod reuse;
mod routes;
mod secrets;
mod tampering;
mod tuned;
