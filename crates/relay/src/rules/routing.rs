//! Policy routing: incoming packets with the mark LOCAL are delivered to this host, for any address (ip-rule(8),
//! ip-route(8)).
//!
//! The rules exclude lookups with `lo` as the incoming interface, which the kernel makes for the route of outgoing
//! packets and for the reverse path of incoming packets. With `src_valid_mark` or `fwmark_reflect` these lookups carry
//! the mark, and would return a wrong route.

use super::apply::run;
use super::error::RulesError;
use super::{Family, Marks, marks};

/// Returns the commands for `ip -batch` that deliver packets marked LOCAL to this host.
pub(super) fn add(marks: Marks) -> String {
    let rules = rules(marks).map(|(_, rule)| format!("rule add {rule}\n"));
    format!("{}{}", route(marks), rules.concat())
}

/// Adds the missing rules, and the route, to the kernel.
pub(super) fn apply(family: Family, marks: Marks) -> Result<(), RulesError> {
    let installed = installed(family, marks)?;
    let missing = rules(marks).into_iter().filter(|rule| !installed.contains(rule));
    let added: String = missing.map(|(_, rule)| format!("rule add {rule}\n")).collect();
    run("ip", &[family.flag(), "-batch", "-"], &format!("{}{added}", route(marks))).map(drop)
}

/// Removes rules and routes. Returns whether any existed.
pub(super) fn remove(family: Family, marks: Marks) -> Result<bool, RulesError> {
    let mut found = false;
    // A script that was run twice may have added some rules twice.
    loop {
        let installed = installed(family, marks)?;
        if installed.is_empty() {
            break;
        }
        found = true;
        let removed: String = installed.into_iter().map(|(_, rule)| format!("rule del {rule}\n")).collect();
        run("ip", &[family.flag(), "-batch", "-"], &removed)?;
    }
    let table = marks.table().to_string();
    // Some versions of ip(8) fail for a table that has never existed.
    let routes = run("ip", &[family.flag(), "route", "show", "table", &table], "").unwrap_or_default();
    if !routes.trim().is_empty() {
        found = true;
        run("ip", &[family.flag(), "route", "flush", "table", &table], "")?;
    }
    Ok(found)
}

/// Returns whether the kernel has policy routing of the family.
pub(super) fn is_supported(family: Family) -> bool {
    run("ip", &[family.flag(), "rule", "show"], "").is_ok()
}

/// Returns whether any routing rule of the relay exists.
pub(super) fn is_installed(family: Family, marks: Marks) -> Result<bool, RulesError> {
    installed(family, marks).map(|rules| !rules.is_empty())
}

/// Returns the existing routing rules of the relay.
fn installed(family: Family, marks: Marks) -> Result<Vec<(u16, String)>, RulesError> {
    let shown = run("ip", &[family.flag(), "rule", "show"], "")?;
    let mark = format!("fwmark {}", local(marks));
    let is_shown =
        |preference: u16| shown.lines().any(|line| line.starts_with(&format!("{preference}:")) && line.contains(&mark));
    Ok(rules(marks).into_iter().filter(|(preference, _)| is_shown(*preference)).collect())
}

fn route(marks: Marks) -> String {
    format!("route replace local default dev lo table {}\n", marks.table())
}

/// Returns the routing rules with their preferences.
fn rules(marks: Marks) -> [(u16, String); 3] {
    let (bypass, lookup, end) = (marks.preference(), marks.preference() + 1, marks.preference() + 2);
    let (local, table) = (local(marks), marks.table());
    [
        (bypass, format!("pref {bypass} iif lo fwmark {local} goto {end}")),
        (lookup, format!("pref {lookup} fwmark {local} lookup {table}")),
        (end, format!("pref {end} fwmark {local} nop")),
    ]
}

fn local(marks: Marks) -> String {
    format!("{:#x}/{:#x}", marks.local(), marks::MASK)
}
