//! `ekiden probe`, run as a user does: real relays on loopback, a server of the test.
//!
//! `scene` has these; every other module has one subject.

#[path = "../harness/mod.rs"]
mod harness;

mod scene;

mod downloads;
mod trouble;
mod visits;
