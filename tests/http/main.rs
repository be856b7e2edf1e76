//! The HTTP forward proxy, with raw sockets of the test as client and server.
//!
//! `exchange` starts the relay, and sends and reads messages; each other module has one subject.
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
