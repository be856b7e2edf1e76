//! HAProxy as a TCP forwarder, optionally transparent, or as an HTTP reverse proxy that reuses connections.

use std::net::{IpAddr, SocketAddr};

use crate::program::{ProgramInfo, unspecified_address};

/// Program and package of HAProxy.
pub const PROGRAM: ProgramInfo =
    ProgramInfo { name: "haproxy", package: "haproxy", executable: "haproxy", version_arguments: &["-v"] };

/// Listening port of the forwarder.
pub const PORT: u16 = 8000;

/// Idle timeout of reused connections, in seconds: longer than any idle time of an experiment.
const IDLE_SECONDS: u32 = 3600;

/// Returns a configuration that forwards to the relay at `next`, or to port `target` of `server`.
#[must_use]
pub fn configuration(next: Option<IpAddr>, server: IpAddr, target: u16) -> String {
    format!("{}{}", common_configuration("tcp"), forward_to(next, server, target))
}

/// Returns a configuration of an HTTP reverse proxy with the same targets. Requests of new clients use idle connections
/// to the target.
#[must_use]
pub fn reusing_configuration(next: Option<IpAddr>, server: IpAddr, target: u16) -> String {
    // By default, haproxy closes idle connections to servers after 5 s.
    format!(
        "{}  option http-keep-alive\n  http-reuse always\n  timeout http-keep-alive {IDLE_SECONDS}s\n{} \
         pool-purge-delay {IDLE_SECONDS}s\n",
        common_configuration("http"),
        forward_to(next, server, target).trim_end()
    )
}

/// Returns a configuration that accepts connections steered by firewall rules, and connects to their original
/// destination with the client's address and port.
#[must_use]
pub fn transparent_configuration() -> String {
    format!(
        "{}  bind 0.0.0.0:{PORT} transparent\n  source 0.0.0.0 usesrc client\n  server next 0.0.0.0\n",
        common_configuration("tcp")
    )
}

fn forward_to(next: Option<IpAddr>, server: IpAddr, target: u16) -> String {
    let to = next.map_or_else(|| SocketAddr::new(server, target), |next| SocketAddr::new(next, PORT));
    let bind = SocketAddr::new(unspecified_address(server), PORT);
    format!("  bind {bind}\n  server next {to}\n")
}

fn common_configuration(mode: &str) -> String {
    // HAProxy refuses to start if the limit of open files is too small for its default maxconn.
    format!(
        "global\n  maxconn 200\n  nbthread 1\ndefaults\n  mode {mode}\n  option splice-auto\n  timeout connect 30s\n  \
         timeout client 1h\n  timeout server 1h\nlisten relay\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_reverse_proxy_reuses_connections() {
        let server = IpAddr::from([10, 100, 0, 2]);
        let reusing = reusing_configuration(None, server, 80);
        assert!(reusing.contains("  mode http\n") && reusing.contains("  http-reuse always\n"), "{reusing}");
        assert!(reusing.ends_with("  server next 10.100.0.2:80 pool-purge-delay 3600s\n"), "{reusing}");
        let forwarding = configuration(Some(IpAddr::from([10, 100, 1, 2])), server, 80);
        assert!(forwarding.contains("  mode tcp\n") && !forwarding.contains("reuse"), "{forwarding}");
        assert!(forwarding.ends_with("  server next 10.100.1.2:8000\n"), "{forwarding}");
    }
}
