//! The rules of transparent listeners in the kernel, in network namespaces of the tests' own: what `ekiden rules` does to
//! a host, and what the rules then do to packets. No relay runs here; the tests have their own transparent sockets, and
//! a rule of their own plays the gate.
//!
//! `network` has the hosts, `sockets` what tests do with sockets, `state` what is in a kernel; every other module is one
//! question.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;

mod network;
mod sockets;

mod bypass;
mod caught;
mod command;
mod doctor;
