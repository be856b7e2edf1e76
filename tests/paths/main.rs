//! `path = "auto"`: a relay that chooses, three relays as candidates, and a server with a link to each of them, in a
//! network built for each test.
//!
//! `scene` builds the network; each other module has one subject.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "../transparent/boxes.rs"]
mod boxes;
#[path = "../harness/mod.rs"]
mod harness;
#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "../transparent/network.rs"]
mod network;
#[path = "../clients/programs.rs"]
mod programs;

mod scene;

mod choice;
mod told;
mod trouble;
mod ways_in;
