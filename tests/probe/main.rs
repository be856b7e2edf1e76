//! `ekiden probe` as a user runs it: real relays on loopback, a server of the test's own.
//!
//! `scene` has these; every other module is one question.

#[path = "../harness/mod.rs"]
mod harness;

mod scene;

mod downloads;
mod trouble;
