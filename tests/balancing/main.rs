//! Load balancing over equal relays: members of a group, and relays behind IPVS.
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
#[path = "../sections/relays.rs"]
mod relays;

mod groups;
mod ipvs;
