//! The tunnel between two sites: hosts reach hosts of the other site by their own addresses, and sections carry the
//! traffic between the relays of the sites. Each test creates its own network namespaces.
//!
//! `sites` creates the two sites, `lanes` sends packets and reads the counters of lanes; every other module covers one
//! topic.
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
