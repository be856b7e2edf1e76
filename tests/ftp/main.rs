//! `ftp://` URLs through the HTTP proxy, and FTP through SOCKS: the real vsftpd, asked by the real curl. What no good
//! server does is done by a scripted one.
//!
//! `vsftpd` and `scripted` are the servers, `curl` the client; every other module is one question.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;

mod scripted;
mod vsftpd;

mod downloads;
mod refusals;
mod truncation;
mod uploads;
