//! squid, an HTTP proxy, with its cache off.

use std::net::Ipv4Addr;
use std::path::Path;

use crate::program::ProgramInfo;

/// What to install for it.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "squid", package: "squid", executable: "squid", version_arguments: &["-v"] };

/// The port it listens on.
pub const PORT: u16 = 3128;

/// What it calls its shared memory on a host: several squids of one machine must not meet there. Letters and digits only.
#[must_use]
pub fn service_name(host: &str) -> String {
    format!("squid{}", host.chars().filter(char::is_ascii_alphanumeric).collect::<String>())
}

/// A proxy that asks the one at `next`, or servers itself.
#[must_use]
pub fn configuration(folder: &Path, host: &str, next: Option<Ipv4Addr>) -> String {
    let parent = next.map_or_else(String::new, |next| {
        format!("cache_peer {next} parent {PORT} 0 no-query no-digest default\nnever_direct allow all\n")
    });
    // Started by root it works as Debian's user `proxy`, who may open no log of ours: -d sends it to standard error.
    format!(
        "http_port {PORT}\nhttp_access allow all\ncache deny all\ncache_mem 8 MB\naccess_log none\ncache_store_log none\n\
         pid_filename none\ncache_log /dev/null\ncoredump_dir {folder}\nvisible_hostname {host}\n\
         netdb_filename none\npinger_enable off\nshutdown_lifetime 1 seconds\n{parent}",
        folder = folder.display()
    )
}
