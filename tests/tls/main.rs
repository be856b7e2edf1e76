//! Listeners that speak TLS: real clients, the ends of streams, changed certificates, and configuration errors.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[allow(dead_code, reason = "the suites of TLS use their own parts of it")]
mod certificate;
mod client_certificates;
mod clients;
mod files;
mod handshakes;
mod http2;
mod http2_limits;
mod pac;
mod proxy_headers;
mod streams;

#[path = "../clients/curl.rs"]
mod curl;
#[path = "../harness/mod.rs"]
mod harness;
#[path = "../clients/origin.rs"]
#[allow(dead_code, reason = "these tests use their own parts of it")]
mod origin;
#[path = "../clients/programs.rs"]
mod programs;
#[path = "../clients/servers.rs"]
mod servers;
