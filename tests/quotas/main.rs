//! Limits of users and listeners: sessions at once, rates, and quotas, with curl as the client.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../clients/programs.rs"]
mod programs;

mod answers;
mod fixture;
mod persistence;
mod rates;
