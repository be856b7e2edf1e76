//! Private targets of open listeners, and the load of password checks.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../clients/curl.rs"]
mod curl;
#[path = "../harness/mod.rs"]
mod harness;
#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "../rules/network.rs"]
mod network;
#[path = "../clients/programs.rs"]
mod programs;

mod names;
mod own_addresses;
mod passwords;
