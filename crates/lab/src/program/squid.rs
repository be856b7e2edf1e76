//! squid, an HTTP proxy, with its cache off.

use std::net::Ipv4Addr;
use std::path::Path;

use crate::program::About;

/// What to install for it.
pub const ABOUT: About = About { name: "squid", package: "squid", executable: "squid", version: &["-v"] };

/// The port it listens on.
pub const PORT: u16 = 3128;

/// A proxy that asks the one at `next`, or servers itself.
#[must_use]
pub fn configuration(folder: &Path, host: &str, next: Option<Ipv4Addr>) -> String {
    let parent = next.map_or_else(String::new, |next| {
        format!("cache_peer {next} parent {PORT} 0 no-query no-digest default\nnever_direct allow all\n")
    });
    // It works for root as well, but gives its rights away to a user that has to own its log.
    format!(
        "http_port {PORT}\nhttp_access allow all\ncache deny all\ncache_mem 8 MB\naccess_log none\ncache_store_log none\n\
         pid_filename none\ncache_log stdio:/dev/stderr\ncoredump_dir {folder}\nvisible_hostname {host}\n\
         cache_effective_user root\nnetdb_filename none\npinger_enable off\nshutdown_lifetime 1 seconds\n{parent}",
        folder = folder.display()
    )
}
