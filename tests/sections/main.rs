//! The section protocol from the view of an operator, a client and an attacker: chains of real relays, with the tests'
//! own sockets before, behind and between them.
//!
//! `relays` starts them, `interceptor` changes their messages, `streams` has the sockets of tests; every other module
//! covers one topic.
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
