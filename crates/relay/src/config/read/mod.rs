//! Reads a configuration from its files and from the command line.
//!
//! Each option of ekiden is declared once, by the line here (or in `listener`, `hop`, `path` and `profiles`) that reads
//! it. The command line takes precedence over the files. The result is a valid configuration, or the list of all
//! mistakes.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use ekiden_proto::addr::Nat64Prefix;
use ekiden_proto::key::PrivateKey;

use super::error::Diagnostics;
use super::files::{SourceFile, read_files};
use super::listener::ListenerSet;
use super::merge::merge_files;
use super::place::{KeyLocation, SourceText};
use super::profiles::Profiles;
use super::reader::TableReader;
use super::shared::ReadContext;
use super::value::{HeadSize, NameServer, PositiveCount, PositiveDuration, Threads, Version};
use super::{
    Config, Hop, LimitsConfig, Timeouts, admin, capture, fleet, history, key, listener, log, path, relays, shared,
    sharing, traces, tun, url,
};

pub use super::admin::{default_admin, default_sockets, parse_admin_address, private_folder};
pub use super::error::{ConfigError, ConfigErrors, FoundValue, NameUse, expected_one_of};

/// The configuration on the command line. Not printable, because the URL of a hop may contain a password.
#[derive(Clone, Default)]
pub struct Flags {
    /// `-L`: the listeners; replaces those of the files.
    pub listen: Vec<String>,
    /// `-F`: the hops in order; replaces `forward` of the files.
    pub forward: Vec<String>,
    /// `--key`: the key file; replaces `private_key` of the files.
    pub key: Option<String>,
    /// `--log`: the log format; replaces `log.format` of the files.
    pub log: Option<String>,
    /// `--log-level`: the logged events; replaces `log.level` of the files.
    pub log_level: Option<String>,
    /// `--admin`: the admin listener; replaces `admin.bind` of the files.
    pub admin: Option<String>,
}

const COMMAND_LINE: &str = "command line";
const SECOND: u64 = 1;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// Reads a configuration from the text of a single file, without command line.
///
/// # Errors
/// Every mistake in the text, and in the files that it names.
pub fn from_text(text: &str) -> Result<Config, ConfigErrors> {
    read_sources(&[SourceFile::only("configuration", text)], &Flags::default())
}

/// Reads the configuration from the files in `paths`, if there are any, and from the command line, which takes
/// precedence. A path is a file, or a directory with files.
///
/// # Errors
/// Every mistake in the files and the command line, and in the files that they name.
pub fn load<'p>(paths: impl IntoIterator<Item = &'p Path>, flags: &Flags) -> Result<Config, ConfigErrors> {
    let paths: Vec<_> = paths.into_iter().collect();
    if paths.is_empty() {
        return read_sources(&[SourceFile::only(COMMAND_LINE, "version = 1")], flags);
    }
    read_sources(&read_files(&paths)?, flags)
}

/// Reads files as one configuration.
fn read_sources(files: &[SourceFile], flags: &Flags) -> Result<Config, ConfigErrors> {
    let notes = Diagnostics::default();
    let table = merge_files(files, &notes);
    let location = KeyLocation::whole_text(SourceText::new(&files[0], files, &notes));
    let config = read_config(TableReader::new(location, Some(&table)), flags, &notes);
    let config = Config { warnings: notes.take_warnings(), congestion_names: notes.take_congestion_names(), ..config };
    notes.into_result().map(|()| config)
}

/// Reads the whole configuration. The result is valid only if no mistake was reported.
fn read_config(file: TableReader<'_>, flags: &Flags, notes: &Diagnostics) -> Config {
    let command = KeyLocation::whole_text(SourceText::command_line(COMMAND_LINE, notes));
    let _: Option<Version> = file.required("version");
    let tables = file.tables("relay");
    let names = shared::read_names(&tables);
    let profiles = Profiles::read(file.named_tables("profile"));
    let (dns_servers, nat64) = read_dns(file.table("dns"));
    let shared = ReadContext::new(
        profiles,
        read_private_key(&file, &command, flags),
        names.iter().flatten().cloned().collect(),
        file.has("fleet"),
        nat64,
    );
    let listeners = read_listeners(&file, &command, flags, &shared);
    let mut relays = relays::read(tables, &names, &shared, &listeners);
    let fleet = fleet::read(&file, &shared);
    if fleet.is_some() {
        relays.set_placeholder(Hop::absent);
    }
    let forward = relays::read_forward(&file, &command, flags, &shared, &listeners, &relays);
    let unnamed_hops = forward.iter().filter(|hop| !relays.valid().any(|relay| Arc::ptr_eq(relay, hop)));
    let users = sharing::read_users(file.named_tables("user"), &shared);
    let has_quota = users.has_quota() || listeners.valid.iter().any(|listener| listener.limits.quota.is_some());
    let config = Config {
        relays: relays.valid().chain(unnamed_hops).cloned().collect(),
        routes: path::read(&file, &relays, forward, &shared.profiles),
        transparent: capture::read_transparent(file.table("transparent")),
        interfaces: sharing::read_interfaces(file.tables("interface")),
        users,
        limits: read_limits(file.table("limits"), has_quota),
        timeouts: read_timeouts(file.table("timeouts")),
        dns_servers,
        admin: admin::read(file.table("admin"), &command, flags.admin.as_deref(), &listeners),
        history: history::read_history(file.table("history")),
        traces: traces::read_traces(&file, &shared),
        log: log::read(&file, &command, flags),
        fleet,
        draining: Vec::new(),
        warnings: Vec::new(),
        congestion_names: Vec::new(),
        threads: file.optional_or("threads", Threads::default()).0,
        congestion: super::congestion::CongestionControls::default(),
        listeners: listeners.valid,
    };
    let of_flags = command.child("-L", None);
    tun::check_loops(&config, &if flags.listen.is_empty() { file.location_of("listener") } else { of_flags });
    file.finish();
    config
}

fn read_listeners(
    file: &TableReader<'_>,
    command: &KeyLocation<'_>,
    flags: &Flags,
    shared: &ReadContext,
) -> ListenerSet {
    let from_files = ListenerSet::read(file.tables("listener"), shared);
    if flags.listen.is_empty() {
        if !file.has("listener") {
            file.error("listener", NO_LISTENER);
        }
        return from_files;
    }
    let place = command.child("-L", None);
    let urls = flags.listen.iter().enumerate().map(|(at, text)| (place.child_item(at, None), text));
    let tables: Vec<_> =
        urls.filter_map(|(location, text)| Some((listener::table_from_url(&location, text)?, location))).collect();
    ListenerSet::read(
        tables.iter().map(|(table, location)| TableReader::new(location.clone(), Some(table))).collect(),
        shared,
    )
}

const NO_LISTENER: &str = "at least one, like [[listener]] with bind = \"127.0.0.1:1080\", or -L auto://127.0.0.1:1080";

const USAGE_FILE: &str =
    "the path of a database that keeps the bytes of quotas over restarts, like \"/var/lib/ekiden/usage.db\"";

/// Reads the private key of this relay: that of the command line if there is one.
fn read_private_key(file: &TableReader<'_>, command: &KeyLocation<'_>, flags: &Flags) -> Option<Arc<PrivateKey>> {
    // Read even if the command line replaces it, so that its mistakes are reported.
    let from_file = key::read(file, "private_key");
    let is_configured = flags.key.is_some() || file.has("private_key");
    let key = match &flags.key {
        None => from_file,
        Some(path) => {
            let flag = url::table_from_pairs([("--key".to_owned(), path.clone())]);
            key::read(&TableReader::of_text(command.clone(), &flag), "--key")
        }
    };
    // A placeholder, so that a wrong key file is not also reported as missing.
    key.or_else(|| is_configured.then(key::temporary_key))
}

fn read_limits(table: TableReader<'_>, has_quota: bool) -> LimitsConfig {
    let limits = LimitsConfig {
        sessions: table.optional("sessions").map(|PositiveCount(n)| n),
        sessions_per_client: table.optional("sessions_per_client").map(|PositiveCount(n)| n),
        head: table.optional_or("head", HeadSize(64 << 10)).0,
        kept_connections: table.optional_or("kept_connections", 256),
        ready_connections: table.optional("ready_connections").map_or(256, |PositiveCount(n)| n),
        usage_file: table.optional("usage_file"),
    };
    if has_quota && !table.has("usage_file") {
        table.error("usage_file", USAGE_FILE);
    }
    if let Some(file) = &limits.usage_file {
        key::warn_if_world_readable(&table, "usage_file", file);
    }
    table.finish();
    limits
}

fn read_timeouts(table: TableReader<'_>) -> Timeouts {
    let read = |key, default| table.optional_or(key, PositiveDuration::seconds(default)).0;
    let drain = read("drain", 30 * SECOND);
    let timeouts = Timeouts {
        handshake: read("handshake", 10 * SECOND),
        hold: read("hold", 3 * SECOND),
        connect: read("connect", 15 * SECOND),
        idle: read("idle", HOUR),
        half_close_idle: read("half_close_idle", 5 * MINUTE),
        keep_alive: read("keep_alive", MINUTE),
        kept_idle: read("kept_idle", 5 * MINUTE),
        ready_age: read("ready_age", MINUTE),
        section_idle: read("section_idle", 10 * MINUTE),
        drain,
        upgrade: read("upgrade", 30 * SECOND),
        upgrade_drain: table.optional("upgrade_drain").map_or(drain, |PositiveDuration(span)| span),
    };
    table.finish();
    timeouts
}

/// Reads the DNS servers, and the prefixes of NAT64 translators.
fn read_dns(table: TableReader<'_>) -> (Vec<SocketAddr>, Arc<[Nat64Prefix]>) {
    let servers = table.list("servers").into_iter().map(|NameServer(address)| address).collect();
    let nat64 = table.list("nat64").into();
    table.finish();
    (servers, nat64)
}

#[cfg(test)]
mod tests;
