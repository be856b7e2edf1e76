//! Careful Resume: its phases, as BPF and as in the virtual kernel, and connections over a long path that use it.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod connections;
mod long_path;
#[path = "../name_lock/mod.rs"]
#[allow(dead_code, reason = "the tests of this suite do not wait for the absence of a control")]
mod name_lock;
#[path = "../growth/network.rs"]
#[allow(dead_code, reason = "another line is between the hosts")]
mod network;
mod phases;
#[path = "../ctcp/rng.rs"]
#[allow(dead_code, reason = "no packets are lost by chance here")]
mod rng;
#[path = "../stepper/mod.rs"]
mod stepper;
mod steps;
