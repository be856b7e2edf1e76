//! Transparent relays between hosts: packets are intercepted on their path, in networks made for each test.
//!
//! `network` makes the hosts, `relays` puts relays on them; every other module covers one topic.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../clients/programs.rs"]
mod programs;
#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "../sections/streams.rs"]
mod streams;

#[allow(dead_code, reason = "other tests of hosts in a row use the rest of it")]
mod network;
mod relays;

mod asymmetric;
mod byte_streams;
mod client_addresses;
mod daemons;
mod fail_open;
mod hold;
mod killed;
mod loops;
mod names;
mod packets;
mod quic;
mod redirect;
mod upgrade;
mod web;

const MEBI: usize = 1 << 20;
