//! Squid as an HTTP proxy, without cache.

use std::net::IpAddr;
use std::path::Path;

use crate::program::ProgramInfo;

/// Program and package of Squid.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "squid", package: "squid", executable: "squid", version_arguments: &["-v"] };

/// Listening port of the proxy.
pub const PORT: u16 = 3128;

/// Returns the service name of a host's Squid, which names its shared memory. It is unique per host and has only
/// letters and digits.
#[must_use]
pub fn service_name(host: &str) -> String {
    format!("squid{}", host.chars().filter(char::is_ascii_alphanumeric).collect::<String>())
}

/// Returns the configuration of a proxy that uses the proxy at `next` as parent, or connects directly. Squid always
/// reuses persistent connections; with `reuse`, idle connections are kept for one hour.
#[must_use]
pub fn configuration(folder: &Path, host: &str, next: Option<IpAddr>, reuse: bool) -> String {
    // The defaults are 1 minute to servers and parents, and 2 minutes to clients.
    let idle_timeouts = if reuse { "server_idle_pconn_timeout 1 hour\nclient_idle_pconn_timeout 1 hour\n" } else { "" };
    // By default, half a minute after its start, squid requests network distances from its parent over a persistent
    // connection, and then closes this connection.
    let parent = next.map_or_else(String::new, |next| {
        format!(
            "cache_peer {next} parent {PORT} 0 no-query no-digest no-netdb-exchange default\nnever_direct allow all\n"
        )
    });
    // Squid started by root runs as Debian's user `proxy`, which cannot open our log files: -d sends the log to stderr.
    format!(
        "http_port {PORT}\nhttp_access allow all\ncache deny all\ncache_mem 8 MB\naccess_log none\ncache_store_log none\n\
         pid_filename none\ncache_log /dev/null\ncoredump_dir {folder}\nvisible_hostname {host}\n\
         netdb_filename none\npinger_enable off\nshutdown_lifetime 1 seconds\n{idle_timeouts}{parent}",
        folder = folder.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reuse_extends_the_idle_connection_timeout() {
        let configuration = |reuse| configuration(Path::new("/run"), "r1", None, reuse);
        assert!(configuration(true).contains("\nserver_idle_pconn_timeout 1 hour\n"));
        assert!(!configuration(false).contains("pconn"));
    }
}
