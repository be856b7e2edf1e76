//! Policy routing: what is marked LOCAL is delivered to this host, whatever its address (ip-rule(8), ip-route(8)).

use super::error::RulesError;
use super::tool::run;
use super::{Family, Marks, marks};

/// Leads packets marked LOCAL to us, as lines for `ip -batch`.
pub(super) fn add(marks: Marks) -> String {
    let table = marks.table();
    format!("route replace local default dev lo table {table}\nrule add {}\n", rule(marks))
}

/// Puts that into the kernel, as far as it is not there.
pub(super) fn apply(family: Family, marks: Marks) -> Result<(), RulesError> {
    let there = is_there(family, marks)?;
    let lines = add(marks);
    let wanted = lines.lines().filter(|line| !there || !line.starts_with("rule"));
    let batch: String = wanted.map(|line| format!("{line}\n")).collect();
    run("ip", &[family.flag(), "-batch", "-"], &batch).map(drop)
}

/// Takes it out again; says whether there was something.
pub(super) fn remove(family: Family, marks: Marks) -> Result<bool, RulesError> {
    let mut found = false;
    // One rule is ours; a script that was run twice may have made more.
    while is_there(family, marks)? {
        found = true;
        run("ip", &[family.flag(), "-batch", "-"], &format!("rule del {}\n", rule(marks)))?;
    }
    let table = marks.table().to_string();
    // A table that never was is an error to some versions of ip(8).
    let routes = run("ip", &[family.flag(), "route", "show", "table", &table], "").unwrap_or_default();
    if !routes.trim().is_empty() {
        found = true;
        run("ip", &[family.flag(), "route", "flush", "table", &table], "")?;
    }
    Ok(found)
}

/// Whether the rule is there, though perhaps not the table.
pub(super) fn is_there(family: Family, marks: Marks) -> Result<bool, RulesError> {
    let rules = run("ip", &[family.flag(), "rule", "show", "pref", &marks.preference().to_string()], "")?;
    Ok(rules.contains(&format!("fwmark {:#x}/{:#x}", marks.local(), marks::MASK)))
}

fn rule(marks: Marks) -> String {
    let (preference, local, table) = (marks.preference(), marks.local(), marks.table());
    format!("pref {preference} fwmark {local:#x}/{:#x} lookup {table}", marks::MASK)
}
