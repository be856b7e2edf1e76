//! A tunnel between two sites, in networks made for each test: hosts of one site reach those of the other by their own
//! addresses, and sections carry the traffic between the two boxes.
//!
//! `sites` makes the two, `lanes` has the packets of tests; every other module covers one topic.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "../sections/interceptor.rs"]
mod interceptor;
#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "../transparent/network.rs"]
mod network;
#[path = "../clients/programs.rs"]
mod programs;
#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "../transparent/relays.rs"]
mod relays;

mod lanes;
mod sites;

mod connections;
mod datagrams;
mod errors;
mod hub;
mod lane_failures;
mod lifecycle;
mod manual;
