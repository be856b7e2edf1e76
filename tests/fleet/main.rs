//! A fleet: relays that learn of each other from etcd, in good days and in bad ones. etcd is the real one, on ports of
//! the kernel's choice and in a folder of the test's own.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;

mod command;
mod etcd;
mod members;
mod scene;
mod trouble;
mod unbelieved;
mod users;
mod way;
mod writing;
