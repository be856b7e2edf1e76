//! Congestion controls as an operator meets them: `ekiden cc`, relays whose profiles name one, and what is said when
//! something is missing. Every test has a BPF file system of its own, which goes with it and takes all pins along.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../../crates/bpf/tests/turn/mod.rs"]
mod turn;

mod room;

mod command;
mod relay;
mod trouble;
