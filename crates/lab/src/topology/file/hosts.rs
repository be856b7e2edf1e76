//! Reads hosts from their tables.

use std::collections::BTreeMap;
use std::time::Duration;

use toml::{Table, Value};

use crate::topology::Host;
use crate::topology::file::errors::{KeySpec, LabFileErrors};
use crate::topology::file::merge_tables;

const HOST_KEYS: &[KeySpec] = &[
    ("forward", "true or false"),
    ("congestion", r#"a congestion control like "cubic""#),
    ("window", r#"a size like "256KiB""#),
    ("rto_min", r#"a time like "1s""#),
    ("recovery", r#""new" or "old""#),
    ("sysctl", r#"settings like { "net.ipv4.tcp_rmem" = "4096 131072 1048576" }"#),
    ("offload", r#""gso" or "off""#),
];

/// Maximum retransmission timeout of the kernel (`TCP_RTO_MAX`).
const MAX_RTO: Duration = Duration::from_secs(120);

/// Returns whether `name` is valid for a host or link: as interface name, as host name and as argument of `ip`.
pub fn is_valid_name(name: &str) -> bool {
    let fine = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    fine && (1..=63).contains(&name.len()) && !name.starts_with('-')
}

/// Reads all hosts. The result includes hosts with errors, so that links to them report no further errors.
pub fn read_hosts(value: Option<Value>, default: &Table, errors: &mut LabFileErrors) -> BTreeMap<String, Host> {
    let mut hosts = BTreeMap::new();
    for (name, table) in errors.read_tables("host", value) {
        let at = format!("host.{name}");
        if !is_valid_name(&name) || name == "localhost" {
            errors.push_at_key(&at, "expected a name of letters, digits and '-', not localhost");
        }
        let mut table = merge_tables(flatten_sysctls(default.clone()), &flatten_sysctls(table));
        if let Some(Value::Table(settings)) = table.get_mut("sysctl") {
            settings.iter_mut().for_each(|(_, value)| *value = sysctl_value(value.clone()));
        }
        let host: Option<Host> = errors.read_table(&at, &table, HOST_KEYS);
        if let Some(host) = &host {
            validate(&at, host, errors);
        }
        hosts.insert(name, host.unwrap_or_default());
    }
    if hosts.is_empty() {
        errors.push_at_key("host", "is missing; expected at least one host like [host.client]");
    }
    hosts
}

fn validate(at: &str, host: &Host, errors: &mut LabFileErrors) {
    if let Some(name) = host.congestion.as_ref().filter(|name| !is_path_component(name)) {
        let value = Value::String(name.clone());
        errors.push(format!("{at}.congestion"), &value, r#"expected a congestion control like "cubic""#);
    }
    if host.window.is_some_and(|window| window.0 < 4096) {
        errors.push_at_key(format!("{at}.window"), "expected at least 4KiB");
    }
    // Routes have their timeout in milliseconds.
    let is_whole = |rto: Duration| rto.subsec_micros().is_multiple_of(1000);
    if host.rto_min.is_some_and(|rto| rto.0 < Duration::from_millis(1) || rto.0 > MAX_RTO || !is_whole(rto.0)) {
        errors.push_at_key(format!("{at}.rto_min"), "expected 1ms to 2min, in whole milliseconds");
    }
    for (key, value) in &host.sysctl {
        // Other sysctls apply to the whole machine.
        let of_a_host = key.strip_prefix("net.").is_some_and(|rest| rest.split('.').all(is_path_component));
        if !of_a_host {
            let (key, value) = (format!("{at}.sysctl.{key:?}"), Value::String(value.clone()));
            errors.push(key, &value, r#"expected a setting of a network namespace like "net.ipv4.tcp_rmem""#);
        }
    }
}

/// Returns whether `text` is one argument of `ip` and one component of a path.
pub fn is_path_component(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Joins the keys of nested sysctl tables: without quotes, TOML parses `net.ipv4.tcp_rmem` as nested tables.
fn flatten_sysctls(mut table: Table) -> Table {
    if let Some(Value::Table(settings)) = table.get_mut("sysctl") {
        let mut plain = Table::new();
        flatten_into("", settings, &mut plain);
        *settings = plain;
    }
    table
}

fn flatten_into(prefix: &str, settings: &Table, plain: &mut Table) {
    for (key, value) in settings {
        let name = format!("{prefix}{key}");
        match value {
            Value::Table(inner) => flatten_into(&format!("{name}."), inner, plain),
            other => drop(plain.insert(name, other.clone())),
        }
    }
}

/// Converts a number or a boolean to the kernel's format.
pub fn sysctl_value(value: Value) -> Value {
    match value {
        Value::Integer(number) => Value::String(number.to_string()),
        Value::Boolean(truth) => Value::String(u8::from(truth).to_string()),
        other => other,
    }
}
