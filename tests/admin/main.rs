//! The admin listener: access control, limits, and the stream of snapshots for the dashboard. The dashboard itself is
//! tested in `tests/clients_slow/dashboard.rs`.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;

mod fixture;

mod access;
mod bounds;
mod several_relays;
mod stream;
mod token;
