//! `ftp://` URLs through the HTTP proxy, and FTP through SOCKS, with vsftpd or a scripted server, and curl as the
//! client.
//!
//! `vsftpd` starts vsftpd and curl, `scripted` is a server with configurable faults; each other module has one subject.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "../harness/mod.rs"]
mod harness;

mod scripted;
mod vsftpd;

mod downloads;
mod refusals;
mod truncation;
mod uploads;
