//! Congestion controls in the running kernel: registration by both methods, parameters and telemetry in socket storage,
//! updates while connections use a control, and removal.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../name_lock/mod.rs"]
mod name_lock;

mod connection;
mod pinned;
mod registration;
