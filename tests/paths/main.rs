//! `path = "auto"`: path selection by a relay with three candidate relays and a direct path to the server.
//!
//! `fixture` builds a network for each test; each other module has one subject.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "../transparent/network.rs"]
mod network;
#[path = "../clients/programs.rs"]
mod programs;
#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "../transparent/relays.rs"]
mod relays;

mod fixture;

mod choice;
mod failures;
mod listeners;
mod telemetry;
