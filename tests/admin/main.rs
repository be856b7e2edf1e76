//! The admin listener of a real relay: access, and the stream that the dashboard reads. Chromium reads the stream in
//! `tests/clients_slow/dashboard.rs`.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;

mod fixture;

mod access;
mod bounds;
mod several_relays;
mod stream;
mod token;
