//! A fleet: relays that discover each other through etcd, in normal operation and during failures. etcd is the real
//! program, on free ports and in a folder of the test.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;

mod command;
mod entries;
mod etcd;
mod etcd_proxy;
mod failures;
mod fixture;
mod members;
mod untrusted;
mod users;
