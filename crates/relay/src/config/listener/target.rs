//! The fixed target of a listener.

use std::net::SocketAddr;

use ekiden_proto::addr::{Host, Target};

use super::leads_to;
use crate::config::access::Denied;
use crate::config::reader::Reader;
use crate::config::{Access, Kind};

pub(super) fn target(reader: &Reader<'_>, kind: Option<Kind>, bind: Option<SocketAddr>) -> Option<Target> {
    match kind? {
        Kind::Tcp => {
            let target = reader.required("target")?;
            if bind.is_some_and(|bind| leads_to(&target, bind)) {
                reader.mistake("target", "another address than the listener's own: this is a loop");
            }
            Some(target)
        }
        Kind::Auto | Kind::Socks | Kind::Http | Kind::Tproxy | Kind::Redirect | Kind::Tun | Kind::Section => {
            if reader.has("target") {
                reader.mistake("target", "no target: only kind = \"tcp\" has one, here the client says it");
            }
            None
        }
    }
}

/// A fixed target that the listener itself forbids could only ever fail. A name is judged when it is resolved.
pub(super) fn check_target(reader: &Reader<'_>, target: &Target, access: &Access) {
    if matches!(target.host, Host::Name(_)) {
        return;
    }
    let expected = match access.judge(&target.host, None, target.port) {
        Ok(()) => return,
        Err(Denied::Private) => "a public address, or allow_private = true beside it",
        Err(Denied::Listed) => "a target that deny does not forbid",
        Err(Denied::Unlisted) => "a target that allow permits",
    };
    reader.mistake("target", expected);
}
