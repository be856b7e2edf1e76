//! Sections of real programs that share the rate of an interface, in networks made for each test. Only the relay limits
//! the rate: the links are as fast as the machine.
//!
//! `fixture` has the hosts, the relay and the downloads; each other module has one subject.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "../transparent/network.rs"]
mod network;
#[path = "../clients/programs.rs"]
mod programs;

mod fixture;

mod equal;
mod reload;
