//! Congestion controls in an operator's use: `ekiden cc`, relays whose profiles name a control, and the messages when
//! something is missing. Each test has its own BPF file system, which ends with the test and removes all pins.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../../crates/bpf/tests/name_lock/mod.rs"]
mod name_lock;

mod mount_namespace;

mod command;
mod errors;
mod relay;
