//! The rules of transparent listeners in the kernel, in network namespaces of the tests: the effects of `ekiden rules`
//! on a host, and of the rules on packets. No relay runs here; the tests have their own transparent sockets, and a test
//! rule replaces the gate.
//!
//! `network` has the hosts and the state of their kernels, `sockets` the sockets of the tests; each other module has
//! one subject.
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
