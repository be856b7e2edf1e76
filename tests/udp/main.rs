//! SOCKS5 UDP ASSOCIATE (RFC 1928, section 7): datagrams between a client and servers, directly and through other
//! relays.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../clients/programs.rs"]
mod programs;
#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "../sections/relays.rs"]
mod relays;
#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "../sections/streams.rs"]
mod streams;

mod client;
mod direct;
mod http3;
mod older_relays;
mod relayed;
mod resolver;
