//! `ftp://` URLs through the HTTP proxy, and FTP through SOCKS: the real vsftpd with the real curl. A scripted server
//! sends invalid replies.
//!
//! `vsftpd` has the real server and curl, `scripted` the scripted server; every other module has one subject.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;

mod scripted;
mod vsftpd;

mod downloads;
mod refusals;
mod truncation;
mod uploads;
