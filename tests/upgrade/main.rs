//! Upgrades: another process takes the place of a running one, and nobody notices; or it cannot, and nobody notices either.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;

mod failing;
mod hitless;
mod leaving;
mod scene;
mod trust;
