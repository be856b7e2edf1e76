//! The HTTP forward proxy between a client and a server: raw sockets on both sides of the real binary.
//!
//! `exchange` has the relay, the heads and the bodies; every other module has one subject.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod exchange;
#[path = "../harness/mod.rs"]
mod harness;

mod access;
mod answers;
mod bodies;
mod early;
mod errors;
mod fields;
mod framing;
mod heads;
mod idle_connections;
mod reload;
mod reuse;
mod truncation;
mod upgrade;
