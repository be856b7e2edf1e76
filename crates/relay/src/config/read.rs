//! What is written: reading a configuration from its file and from the command line.
//!
//! Each option of ekiden is declared once, by the line here (or in `listener`, `relays`, `hop`, `routes` and `profiles`) that reads it.
//! The command line beats the file. Nothing is returned unless everything is right; otherwise every mistake is.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use ekiden_proto::addr::Nat64;
use ekiden_proto::key::PrivateKey;
use toml::de::DeTable;

use super::listener::Listeners;
use super::mistake::Notes;
use super::place::{Place, Source};
use super::profiles::Profiles;
use super::reader::Reader;
use super::shared::Shared;
use super::value::{Count, Deadline, HeadSize, NameServer, Threads, Version};
use super::{
    Config, Hop, Limits, Timeouts, admin, capture, fleet, history, key, listener, log, named, relays, routes, sharing,
    traces, tun, url,
};

pub use super::admin::{admin_address, default_admin, private_folder};
pub use super::mistake::{Found, Mistake, Mistakes, Named, one_of};

/// What the command line says about the configuration. Not printable: a hop's URL may hold a password.
#[derive(Clone, Default)]
pub struct Flags {
    /// `-L`: the listeners, instead of the file's.
    pub listen: Vec<String>,
    /// `-F`: the hops in order, instead of the file's.
    pub forward: Vec<String>,
    /// `--key`: instead of `private_key`.
    pub key: Option<String>,
    /// `--log`: instead of `log.format`.
    pub log: Option<String>,
    /// `--log-level`: instead of `log.level`.
    pub log_level: Option<String>,
    /// `--admin`: instead of `admin.bind`.
    pub admin: Option<String>,
}

const COMMAND_LINE: &str = "command line";
const SECOND: u64 = 1;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// Reads a configuration from the text of a file alone.
///
/// # Errors
/// Every mistake in it, and in the files it names.
pub fn from_text(text: &str) -> Result<Config, Mistakes> {
    assemble(("configuration", false), text, &Flags::default())
}

/// Reads the configuration of `file`, if there is one, and of the command line, which beats it.
///
/// # Errors
/// Every mistake in both, and in the files they name.
pub fn load(file: Option<&Path>, flags: &Flags) -> Result<Config, Mistakes> {
    let Some(path) = file else {
        return assemble((COMMAND_LINE, false), "version = 1", flags);
    };
    let place = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(text) => assemble((&place, key::is_open(path)), &text, flags),
        Err(error) => {
            let expected = format!("a readable file of UTF-8 text ({error})");
            Err(Mistakes(vec![Mistake { place, line: None, key: String::new(), found: Found::Whole, expected }]))
        }
    }
}

/// Reads a text with the name `name` in mistakes; `open` says whether every user of this host can read its file.
fn assemble((name, open): (&str, bool), text: &str, flags: &Flags) -> Result<Config, Mistakes> {
    let notes = Notes::default();
    let (table, errors) = DeTable::parse_recoverable(text);
    let file = Source { name, text: Some(text), open, notes: &notes };
    for error in errors {
        // Its `Display` would quote the line, and with it perhaps a password.
        Place::whole(file).at(error.span().as_ref()).note(Found::Syntax, error.message());
    }
    let config = configuration(Reader::new(Place::whole(file), Some(table.get_ref())), flags, &notes);
    let config = Config { warnings: notes.warnings(), congestion_names: notes.congestion(), ..config };
    notes.verdict().map(|()| config)
}

/// Reads everything. The result counts only if no mistake was noted.
fn configuration(file: Reader<'_>, flags: &Flags, notes: &Notes) -> Config {
    let command = Place::whole(Source { name: COMMAND_LINE, text: None, open: false, notes });
    let _: Option<Version> = file.required("version");
    let tables = file.tables("relay");
    let names = named::names(&tables);
    let profiles = Profiles::read(file.named("profile"));
    let (dns_servers, nat64) = dns(file.table("dns"));
    let shared = Shared::new(
        profiles,
        private_key(&file, &command, flags),
        names.iter().flatten().cloned().collect(),
        file.has("fleet"),
        nat64,
    );
    let listeners = listeners(&file, &command, flags, &shared);
    let mut relays = relays::read(tables, &names, &shared, &listeners);
    let fleet = fleet::read(&file, &shared);
    if fleet.is_some() {
        relays.stand_in(Hop::absent);
    }
    let forward = relays::forward(&file, &command, flags, &shared, &listeners, &relays);
    let others = forward.iter().filter(|hop| !relays.good().any(|relay| Arc::ptr_eq(relay, hop)));
    let config = Config {
        relays: relays.good().chain(others).cloned().collect(),
        routes: routes::read(&file, &relays, forward, &shared.profiles),
        transparent: capture::transparent(file.table("transparent")),
        interfaces: sharing::interfaces(file.tables("interface")),
        weights: sharing::weights(file.named("user"), &shared),
        limits: limits(file.table("limits")),
        timeouts: timeouts(file.table("timeouts")),
        dns_servers,
        admin: admin::read(file.table("admin"), &command, flags.admin.as_deref(), &listeners),
        history: history::history(file.table("history")),
        traces: traces::traces(&file, &shared),
        log: log::read(&file, &command, flags),
        fleet,
        draining: Vec::new(),
        warnings: Vec::new(),
        congestion_names: Vec::new(),
        threads: file.or("threads", Threads::default()).0,
        congestion: crate::congestion::Controls::default(),
        listeners: listeners.good,
    };
    let of_flags = command.below("-L", None);
    tun::check(&config, &if flags.listen.is_empty() { file.place_of("listener") } else { of_flags });
    file.finish();
    config
}

fn listeners(file: &Reader<'_>, command: &Place<'_>, flags: &Flags, shared: &Shared) -> Listeners {
    let written = Listeners::read(file.tables("listener"), shared);
    if flags.listen.is_empty() {
        if !file.has("listener") {
            file.mistake("listener", NO_LISTENER);
        }
        return written;
    }
    let place = command.below("-L", None);
    let urls = flags.listen.iter().enumerate().map(|(at, text)| (place.item(at, None), text));
    let tables: Vec<_> = urls.filter_map(|(here, text)| Some((listener::from_url(&here, text)?, here))).collect();
    Listeners::read(tables.iter().map(|(table, here)| Reader::new(here.clone(), Some(table))).collect(), shared)
}

const NO_LISTENER: &str = "at least one, like [[listener]] with bind = \"127.0.0.1:1080\", or -L auto://127.0.0.1:1080";

/// Our own key: that of the command line if there is one.
fn private_key(file: &Reader<'_>, command: &Place<'_>, flags: &Flags) -> Option<Arc<PrivateKey>> {
    // Replaced, perhaps, but still to be right in itself.
    let written = key::read(file, "private_key");
    let given = flags.key.is_some() || file.has("private_key");
    let key = match &flags.key {
        None => written,
        Some(path) => {
            let flag = url::table([("--key".to_owned(), path.clone())]);
            key::read(&Reader::of_text(command.clone(), &flag), "--key")
        }
    };
    // A stand-in: nobody is to miss one that is wrong, which is one mistake already.
    key.or_else(|| given.then(key::made_at_start))
}

fn limits(table: Reader<'_>) -> Limits {
    let limits = Limits {
        sessions: table.optional("sessions").map(|Count(n)| n),
        sessions_per_client: table.optional("sessions_per_client").map(|Count(n)| n),
        head: table.or("head", HeadSize(64 << 10)).0,
        kept_connections: table.or("kept_connections", 256),
        ready_connections: table.optional("ready_connections").map_or(256, |Count(n)| n),
    };
    table.finish();
    limits
}

fn timeouts(table: Reader<'_>) -> Timeouts {
    let read = |key, default| table.or(key, Deadline::seconds(default)).0;
    let drain = read("drain", 30 * SECOND);
    let timeouts = Timeouts {
        handshake: read("handshake", 10 * SECOND),
        hold: read("hold", 3 * SECOND),
        connect: read("connect", 15 * SECOND),
        idle: read("idle", HOUR),
        half_close_idle: read("half_close_idle", 5 * MINUTE),
        keep_alive: read("keep_alive", MINUTE),
        kept_idle: read("kept_idle", MINUTE),
        ready_age: read("ready_age", MINUTE),
        drain,
        upgrade: read("upgrade", 30 * SECOND),
        upgrade_drain: table.optional("upgrade_drain").map_or(drain, |Deadline(span)| span),
    };
    table.finish();
    timeouts
}

/// The name servers, and the prefixes of NAT64 translators.
fn dns(table: Reader<'_>) -> (Vec<SocketAddr>, Arc<[Nat64]>) {
    let servers = table.list("servers").into_iter().map(|NameServer(address)| address).collect();
    let nat64 = table.list("nat64").into();
    table.finish();
    (servers, nat64)
}

#[cfg(test)]
mod tests;
