//! `ekiden probe` as a user runs it, with relays on loopback and a server of the test.
//!
//! `fixture` starts the relays, the server and the probe; each other module has one subject.

#[path = "../harness/mod.rs"]
mod harness;

mod fixture;

mod downloads;
mod failures;
mod visits;
