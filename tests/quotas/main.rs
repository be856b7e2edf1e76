//! Limits of users and listeners: concurrent sessions, rates, and quotas.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../clients/programs.rs"]
mod programs;

mod answers;
mod fixture;
mod persistence;
mod rates;
