//! The fixed target of a listener.

use std::net::SocketAddr;

use ekiden_proto::addr::{Host, Target};

use super::is_loop;
use crate::config::access::Denied;
use crate::config::reader::TableReader;
use crate::config::{AccessRules, ListenerKind};

pub(super) fn read_target(
    reader: &TableReader<'_>,
    kind: Option<ListenerKind>,
    bind: Option<SocketAddr>,
) -> Option<Target> {
    match kind? {
        ListenerKind::Tcp => {
            let target = reader.required("target")?;
            if bind.is_some_and(|bind| is_loop(&target, bind)) {
                reader.error("target", "another address than the listener's own: this is a loop");
            }
            Some(target)
        }
        ListenerKind::Auto
        | ListenerKind::Socks
        | ListenerKind::Http
        | ListenerKind::Tproxy
        | ListenerKind::Redirect
        | ListenerKind::Tun
        | ListenerKind::Section => {
            if reader.has("target") {
                reader.error("target", "no target: only kind = \"tcp\" has one, here the client says it");
            }
            None
        }
    }
}

/// A fixed target that the listener itself forbids could only ever fail. A name is judged when it is resolved.
pub(super) fn check_target(reader: &TableReader<'_>, target: &Target, access: &AccessRules) {
    if matches!(target.host, Host::Name(_)) {
        return;
    }
    let expected = match access.judge(&target.host, None, target.port) {
        Ok(()) => return,
        Err(Denied::Private) => "a public address, or allow_private = true beside it",
        Err(Denied::Listed) => "a target that deny does not forbid",
        Err(Denied::Unlisted) => "a target that allow permits",
    };
    reader.error("target", expected);
}
