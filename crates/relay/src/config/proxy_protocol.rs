//! The PROXY protocol: the load balancers whose headers a listener trusts.

use ekiden_proto::addr::Network;

use super::ListenerKind;
use super::reader::TableReader;

/// Reads the networks of load balancers.
pub(super) fn read_trusted(
    reader: &TableReader<'_>,
    kind: Option<ListenerKind>,
    keep_client_address: bool,
) -> Vec<Network> {
    let trusted = reader.list("proxy_protocol");
    let Some(kind) = kind.filter(|_| reader.has("proxy_protocol")) else { return trusted };
    if kind.is_transparent() || kind == ListenerKind::Section {
        reader.error("proxy_protocol", r#"nothing: only kind = "auto", "socks", "http" and "tcp" have it"#);
    } else if keep_client_address && !trusted.is_empty() {
        let expected = "nothing beside keep_client_address: targets would answer to addresses that are not routed through \
                        this host";
        reader.error("proxy_protocol", expected);
    }
    trusted
}
