//! The rules of transparent listeners in the kernel: the effects of `ekiden rules` on a host, and of the rules on
//! packets. No relay runs: the tests open transparent sockets themselves, and a rule of the test replaces the gate.
//!
//! `network` creates the hosts and reads their rules, `sockets` opens the sockets; each other module has one subject.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;

mod network;
mod sockets;

mod bypass;
mod command;
mod doctor;
mod interception;
mod quic;
