//! Congestion controls in this machine's kernel: registered both ways, asked and heard through socket storage, exchanged
//! while connections use them, and gone when they should be.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../turn/mod.rs"]
mod turn;

mod connection;
mod held;
mod pinned;
