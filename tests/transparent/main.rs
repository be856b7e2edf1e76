//! Transparent relays between hosts: packets are intercepted on their path, in networks made for each test.
//!
//! `network` makes the hosts, `boxes` puts relays on them; every other module covers one topic.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../clients/programs.rs"]
mod programs;
#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "../sections/streams.rs"]
mod streams;

mod boxes;
#[allow(dead_code, reason = "other tests of hosts in a row use the rest of it")]
mod network;

mod asymmetric;
mod carried;
mod daemons;
mod hold;
mod kept;
mod killed;
mod loops;
mod names;
mod open;
mod packets;
mod quic;
mod redirect;
mod upgraded;
mod web;
