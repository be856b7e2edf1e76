//! docs/api.md lists every field of `/api/sessions` with its type, and no other field.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use serde_json::Value;

use crate::fixture::*;
use crate::harness::*;
use crate::relays::*;

const PAGE: &str = include_str!("../../docs/api.md");

/// Fields that need a tunnel, a fleet with etcd, a congestion control of ekiden in the kernel, measured paths, or a
/// certificate; unit tests of the relay and tests/tls check these fields.
const TESTED_ELSEWHERE: [&str; 5] = ["lanes[].", "fleet.", "SECTION.told.", "choices[].", "sessions[].tls."];

/// Returns each field of the page with its permitted types.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
    let row = |row: &str| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert!(cells.len() == 5 && !cells[3].is_empty(), "no field, type, unit or description: {row}");
        (cells[0].trim_end_matches('`').to_owned(), cells[1].split(" or ").map(str::to_owned).collect())
    };
    rows.map(row).collect()
}

/// Records the type of `value`, the value at `path`, and of all fields and list items in it.
fn record_fields(path: &str, value: &Value, found: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "flag",
        Value::Number(number) if number.is_u64() => "count",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    };
    found.entry(path.to_owned()).or_default().insert(kind);
    let path = match path {
        "sessions[].down" | "sessions[].up" => "SECTION",
        "sessions[].limits.down" | "sessions[].limits.up" => "LIMIT",
        path => path,
    };
    match value {
        Value::Array(items) => items.iter().filter(|item| !item.is_string()).for_each(|item| {
            record_fields(&format!("{path}[]"), item, found);
        }),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            record_fields(&below, value, found);
        }),
        _ => {}
    }
}

fn answer(relay: &Relay) -> Value {
    serde_json::from_str(&relay.ask("/api/sessions")).unwrap()
}

/// Starts a home relay with user authentication and a far relay, with an encrypted and tuned section between them. The
/// profile of home's listener has a congestion control that the kernel lacks.
fn pair_of_relays() -> (Relay, Relay, [Site; 2]) {
    let sites = [Site::new(), Site::new()];
    let [near, beyond] = &sites;
    let peers = beyond.admit(&[(&near.key.public, "home")]);
    let far = beyond.relay("", &format!("peers = {peers:?}\n"));
    let relay = beyond.table("far", "encrypt = true\n");
    let profile = "[profile.mine]\ncongestion = \"scalable\"\n";
    let users = near.folder.write("users", HTPASSWD);
    let settings = format!("{profile}{relay}{}", route_all_through("way", &["far".to_owned()]));
    let home = near.home(&settings, &format!("{AUTO}profile = \"mine\"\nusers = {users:?}\n"));
    (home, far, sites)
}

/// Opens a session of the user in [`HTPASSWD`]. Returns the ends of the client and the server.
fn session(home: &Relay) -> (std::net::TcpStream, std::net::TcpStream) {
    let (listener, target) = server();
    let mut client = home.connect();
    let login = "YW5uOmNvcnJlY3QgaG9yc2U=";
    write!(client, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic {login}\r\n\r\n")
        .unwrap();
    assert!(read_head(&mut client).starts_with("HTTP/1.1 200"));
    (client, accept(&listener))
}

#[test]
fn api_page_lists_exactly_the_fields_of_responses() {
    let mut found = BTreeMap::new();
    let fixture = Fixture::busy();
    let mut chosen = socks5(fixture.home.address(), data_server(10_000_000)).expect("a tunnel");
    chosen.write_all(b"?").unwrap();
    let (home, far, _sites) = pair_of_relays();
    let (client, server) = session(&home);
    let sending = flood(server);
    let mut record_answer = |relay: &Relay| {
        let answer = answer(relay);
        record_fields("", &answer, &mut found);
        answer
    };
    eventually("a session on a chosen path", || {
        record_answer(&fixture.home)["sessions"][0]["chosen"].is_object().then_some(())
    });
    eventually("a session limited by the client, on a tuned section", || {
        let session = record_answer(&home)["sessions"][0].clone();
        (session["limits"]["down"].is_object() && session["up"]["tuning"].is_object()).then_some(())
    });
    assert_eq!(record_answer(&home)["sessions"][0]["user"], "ann");
    assert_eq!(record_answer(&far)["sessions"][0]["peer"], "home");
    drop((client, chosen));
    join(sending);

    // The page does not list the root of the response, and lists the fields of list items but not the items.
    found.retain(|path, _| !path.is_empty() && !path.ends_with("[]"));
    let documented = documented();
    let missing: Vec<_> = found.keys().filter(|path| !documented.contains_key(*path)).collect();
    assert!(missing.is_empty(), "not in docs/api.md: {missing:?}");
    for (path, kinds) in &found {
        let allowed = &documented[path];
        // A number without a fraction is recorded as a count.
        let fits = |kind: &str| allowed.contains(kind) || (kind == "count" && allowed.contains("number"));
        assert!(kinds.iter().all(|kind| fits(kind)), "{path} is {kinds:?}, and docs/api.md says {allowed:?}");
    }
    let elsewhere = |path: &&String| TESTED_ELSEWHERE.iter().any(|begin| path.starts_with(begin));
    let absent: Vec<_> = documented.keys().filter(|path| !found.contains_key(*path) && !elsewhere(path)).collect();
    assert!(absent.is_empty(), "docs/api.md has fields that no answer has: {absent:?}");
}
