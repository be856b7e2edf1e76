//! `ekiden aqm` on a router between hosts, all in separate network namespaces.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
#[allow(dead_code, reason = "the hosts of other tests, and these need less of them")]
#[path = "../rules/network.rs"]
mod network;
#[path = "../clients/programs.rs"]
mod programs;

mod flows;
mod manage;
mod traffic;
