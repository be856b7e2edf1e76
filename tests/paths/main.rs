//! `path = "auto"`: a relay that chooses, three relays as candidates, and a server with a link to each of them, in a
//! network built for each test.
//!
//! `fixture` builds the network; each other module has one subject.
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
