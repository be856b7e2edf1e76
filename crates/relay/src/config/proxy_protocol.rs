//! The PROXY protocol: the load balancers whose headers a listener trusts, and the headers that a route sends to targets.

use std::net::IpAddr;
use std::sync::Arc;

use ekiden_proto::addr::Network;
use ekiden_proto::wire::proxy_protocol::ProxyVersion;

use super::reader::TableReader;
use super::value::ConfigValue;
use super::{Listener, ListenerKind, Path};

impl Listener {
    /// Whether connections from `source` must start with a PROXY header.
    #[must_use]
    pub fn is_load_balancer(&self, source: IpAddr) -> bool {
        self.proxy_protocol.iter().any(|network| network.contains(source))
    }
}

/// Reads the networks of load balancers.
pub(super) fn read_trusted(
    reader: &TableReader<'_>,
    kind: Option<ListenerKind>,
    keep_client_address: bool,
) -> Vec<Network> {
    let trusted = reader.list("proxy_protocol");
    let Some(kind) = kind.filter(|_| reader.has("proxy_protocol")) else { return trusted };
    if kind.is_transparent() || kind == ListenerKind::Section {
        reader.error("proxy_protocol", r#"this key only with kind = "auto", "socks", "http" or "tcp""#);
    } else if keep_client_address && !trusted.is_empty() {
        let expected = "no proxy_protocol with keep_client_address: targets would answer to addresses that are not \
                        routed through this host";
        reader.error("proxy_protocol", expected);
    } else if trusted.iter().any(|network: &Network| network.prefix_len() == 0) {
        // Every client counts as a load balancer: it may claim any address, and is refused without a PROXY header.
        reader.warn("proxy_protocol", "the networks of load balancers: each host in them may claim any client address");
    }
    trusted
}

/// Reads the version of the PROXY headers to targets. The relay that connects to the target sends the header, so all
/// paths of the route must be direct.
pub(super) fn read_send_proxy(reader: &TableReader<'_>, paths: &[Arc<Path>], auto: bool) -> Option<ProxyVersion> {
    let version = reader.optional("send_proxy");
    if reader.has("send_proxy") && (auto || paths.iter().any(|path| !path.is_direct())) {
        let expected = "this key only with path = [\"direct\"]: the relay that connects to the target sends the header, so \
                        set send_proxy in a route of the last relay";
        reader.error("send_proxy", expected);
    }
    version
}

impl ConfigValue for ProxyVersion {
    const EXPECTED: &'static str = r#""v1" or "v2""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            "v1" => Ok(Self::V1),
            "v2" => Ok(Self::V2),
            _ => Err(Self::EXPECTED),
        }
    }
}
