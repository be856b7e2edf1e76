//! Congestion controls as an operator uses them: `ekiden cc`, relays whose profiles name a control, and the messages
//! for missing requirements. Each test has its own BPF file system, which is removed with all pins after the test.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../../crates/bpf/tests/name_lock/mod.rs"]
mod name_lock;

mod mount_namespace;

mod command;
mod errors;
mod relay;
