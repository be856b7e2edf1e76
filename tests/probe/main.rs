//! `ekiden probe`, run as a user does: real relays on loopback, a server of the test.
//!
//! `fixture` has the relays and the server; each other module has one subject.

#[path = "../harness/mod.rs"]
mod harness;

mod fixture;

mod downloads;
mod failures;
mod visits;
