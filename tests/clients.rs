//! Installed client programs, which connect through the relay to installed servers. Tests that take long are in
//! `clients_slow.rs`.

mod harness;

#[path = "clients/curl.rs"]
mod curl;
#[path = "clients/errors.rs"]
mod errors;
#[path = "clients/hops.rs"]
mod hops;
#[path = "clients/http.rs"]
mod http;
#[path = "clients/namespace.rs"]
mod namespace;
#[path = "clients/origin.rs"]
mod origin;
#[path = "clients/others.rs"]
mod others;
#[path = "clients/passwords.rs"]
mod passwords;
#[path = "clients/programs.rs"]
mod programs;
#[path = "clients/reuse.rs"]
mod reuse;
#[path = "clients/servers.rs"]
mod servers;
#[path = "clients/socks.rs"]
mod socks;
#[path = "clients/table.rs"]
mod table;
#[path = "clients/truncation.rs"]
mod truncation;
#[path = "clients/uploads.rs"]
mod uploads;
#[path = "clients/users.rs"]
mod users;
