//! What transparent listeners catch, and `[transparent]`.

use std::net::SocketAddr;
use std::sync::Arc;

use super::reader::Reader;
use super::value::{Instance, Interface};
use super::{Access, Capture, Hosts, Kind, Listener, Pattern, RulesBy, Transparent};
use crate::rules::Marks;

/// Reads `[transparent]`.
pub(super) fn transparent(table: Reader<'_>) -> Transparent {
    let rules = table.or("rules", RulesBy::Managed);
    let Instance(instance) = table.or("instance", Instance(1));
    table.finish();
    Transparent { rules, instance }
}

/// Reads what a listener catches, which is the business of transparent ones only.
pub(super) fn read(
    reader: &Reader<'_>,
    kind: Option<Kind>,
    bind: Option<SocketAddr>,
    access: &Access,
) -> Option<Capture> {
    if !kind?.is_transparent() {
        let keys = ["interfaces", "clients"].into_iter().filter(|key| reader.has(key));
        keys.for_each(|key| reader.mistake(key, "nothing: only kind = \"tproxy\" and \"redirect\" have it"));
        return None;
    }
    let interfaces: Vec<_> = reader.some("interfaces").into_iter().map(|(_, Interface(name))| name).collect();
    let clients = reader.list("clients");
    let own_programs = interfaces.iter().any(|name| name == "lo");
    if own_programs && kind == Some(Kind::Tproxy) {
        reader.mistake("interfaces", "other interfaces: only redirect catches what this host's own programs send");
    }
    if let Some(bind) = bind {
        check_bind(reader, kind?, bind, interfaces.iter().all(|name| name == "lo"));
    }
    for (key, patterns) in [("allow", &access.allow), ("deny", &access.deny)] {
        if patterns.iter().any(|pattern: &Pattern| matches!(pattern.hosts, Hosts::Name(_) | Hosts::Under(_))) {
            reader.mistake(key, "networks and ports: packets have no names");
        }
    }
    Some(Capture { interfaces, clients })
}

/// There are marks and queues for so many.
pub(super) fn check_number(reader: &Reader<'_>, listener: Option<&Listener>, others: &[Arc<Listener>]) {
    let before = others.iter().filter(|other| other.kind.is_transparent()).count();
    if listener.is_some_and(|listener| listener.kind.is_transparent()) && before >= Marks::MOST_LISTENERS {
        reader.mistake("kind", format!("at most {} that are tproxy or redirect", Marks::MOST_LISTENERS));
    }
}

fn check_bind(reader: &Reader<'_>, kind: Kind, bind: SocketAddr, only_own_programs: bool) {
    if bind.port() == 0 {
        reader.mistake("bind", "a port that does not change: the rules name it");
    }
    // Address translation leads to the address of the interface where a packet came in.
    if kind == Kind::Redirect && bind.ip().to_canonical().is_loopback() && !only_own_programs {
        reader.mistake("bind", "0.0.0.0 or [::]: redirected connections do not come to loopback");
    }
}
