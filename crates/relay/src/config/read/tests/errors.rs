//! The place of each error, and suggestions of a unit, a name or a scheme.

use super::*;

#[test]
fn all_errors_are_reported_at_once() {
    let text = r#"version = 2
threads = 0
target_profile = "longhall"
forward = ["socks4://h:1", 5]
[[listener]]
bind = "127.0.0.1"
kind = "sock"
allow_privat = true
allow = ["ok.example", "a b"]
[[listener]]
bind = "0.0.0.0:1080"
[limits]
head = 65536
[timeouts]
idle = "30"
drain = "0s"
[profile.mine]
mss = "big"
[relay]
[admin]
bind = "0.0.0.0:9090"
"#;
    let seen: Vec<_> = errors_of(text).into_iter().map(|m| (m.line.unwrap_or(0), m.key, m.found)).collect();
    let value = |text: &str| FoundValue::Value(text.to_owned());
    let expected = [
        (1, "version", value("2")),
        (2, "threads", value("0")),
        (3, "target_profile", value("\"longhall\"")),
        (4, "forward[1]", value("\"socks4://h:1\"")),
        (4, "forward[2]", FoundValue::Hidden),
        (6, "listener[1].bind", value("\"127.0.0.1\"")),
        (7, "listener[1].kind", value("\"sock\"")),
        (8, "listener[1].allow_privat", FoundValue::Unknown),
        (9, "listener[1].allow[2]", value("\"a b\"")),
        (11, "listener[2].bind", value("\"0.0.0.0:1080\"")),
        (13, "limits.head", value("65536")),
        (15, "timeouts.idle", value("\"30\"")),
        (16, "timeouts.drain", value("\"0s\"")),
        (18, "profile.mine.mss", value("\"big\"")),
        (19, "relay", value("{...}")),
        (21, "admin.bind", value("\"0.0.0.0:9090\"")),
    ];
    let mut expected: Vec<_> = expected.map(|(line, key, found)| (line, key.to_owned(), found)).into();
    let mut seen = seen;
    // Errors of one line are in the order of the checks, which this test ignores.
    seen.sort_by_key(|m| (m.0, m.1.clone()));
    expected.sort_by_key(|m| (m.0, m.1.clone()));
    assert_eq!(seen, expected);
    let shown = from_text(text).unwrap_err().to_string();
    assert_eq!(shown.lines().count(), expected.len());
    for part in [
        "configuration:3: target_profile = \"longhall\": expected a profile: \"longhaul\", perhaps",
        "configuration:8: listener[1].allow_privat is not a key: expected \"allow_private\", perhaps; the keys are ",
        "configuration:19: relay = {...}: expected tables that begin with [[relay]]",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
}

#[test]
fn each_invalid_config_yields_one_error() {
    let second = "[[listener]]\nbind = \"127.0.0.1:1081\"\n";
    for (text, key, expected) in [
        ("", "version", "version = 1"),
        ("version = \"1\"", "version", "version = 1"),
        ("listener = 5", "listener", "[[listener]]"),
        ("forward = \"http://h:1\"", "forward", "a list in [ ]"),
        ("limits = 5", "limits", "a table [limits]"),
        ("[dns]\nservers = \"192.0.2.1\"", "dns.servers", "a list in [ ]"),
        ("[dns]\nservers = [\"dns.example\"]", "dns.servers[1]", "the address of a name server"),
        ("[dns]\nnat64 = [\"2001:db8::/95\"]", "dns.nat64[1]", "a NAT64 prefix like \"2001:db8:64::/96\""),
        ("[profile.a]\nbase = \"b\"", "profile.a.base", "one of lan, auto, longhaul, lossy, satellite, a"),
        ("[profile.a]\nbase = \"a\"", "profile.a.base", "not itself based on this profile"),
        ("[profile.lan]\nmss = 1400", "profile.lan", "this profile is built in"),
        ("[profile]\nx = 1", "profile.x", "a table [profile.NAME]"),
        ("[profile.a]\nnagle = true", "profile.a.nagle", "one of base, bind"),
        ("[profile.a]\nmss = 1.5", "profile.a.mss", "a whole number"),
        ("[profile.a]\nrto_min = 40", "profile.a.rto_min", "a time from \"8ms\""),
        ("[admin]\nbind = \"127.0.0.1:1081\"\n[[listener]]\nbind = \":1081\"", "admin.bind", "that no listener uses"),
        ("[[listener]]\nbind = \":1080\"\n[[listener]]\nbind = \":1080\"", "listener[2].bind", "no other listener"),
        ("[[listener]]\nkind = \"http\"", "listener[1].bind", "an address and port"),
        ("[[listener]]\nbind = \":1\"\nkind = \"tproxy\"", "listener[1].interfaces", "at least one"),
        ("[transparent]\nrules = \"auto\"", "transparent.rules", "\"managed\" or \"manual\""),
        ("[transparent]\ninstance = 16", "transparent.instance", "a number from 1 to 15"),
        ("[timeouts]\nhold = \"0s\"", "timeouts.hold", "a time above zero"),
        ("[[listener]]\nbind = \":1\"\nkind = \"tcp\"", "listener[1].target", "a host and port"),
        ("[[listener]]\nbind = \":1\"\ntarget = \"h:1\"", "listener[1].target", "only kind = \"tcp\""),
        ("[[listener]]\nbind = \":1\"\nusers = \"/nonexistent\"", "listener[1].users", "a readable htpasswd file"),
        ("[[listener]]\nbind = \":1\"\nallow_open = \"yes\"", "listener[1].allow_open", "true or false"),
        ("[[listener]]\nbind = \"0.0.0.0:1\"\nallow_open = 1", "listener[1].allow_open", "true or false"),
        ("[[listener]]\nbind = \"0.0.0.0:1\"\nallow_open = false", "listener[1].bind", "users = FILE"),
        (
            "[[listener]]\nbind = \"[::]:1\"\nkind = \"tcp\"\ntarget = \"192.0.2.1:1\"",
            "listener[1].bind",
            "bind to 127.0.0.1, or set allow_open = true",
        ),
        (
            "[[listener]]\nbind = \"[::]:1\"\nkind = \"tcp\"\nallow_open = true\ntarget = \"10.0.0.1:1\"",
            "listener[1].target",
            "allow_private = true",
        ),
        (
            "[[listener]]\nbind = \":1\"\nkind = \"tcp\"\ntarget = \"localhost:1\"",
            "listener[1].target",
            "connections would loop",
        ),
        (
            "[[listener]]\nname = \"a\"\nbind = \":1\"\n[[listener]]\nname = \"a\"\nbind = \":2\"",
            "listener[2].name",
            "no other listener",
        ),
    ] {
        let version = if key == "version" { "" } else { "version = 1\n" };
        let listener = if text.contains("listener") { "" } else { second };
        let seen = errors_of(&format!("{version}{text}\n{listener}"));
        let [mistake] = &seen[..] else { panic!("{text}: {seen:#?}") };
        assert_eq!(mistake.key, key, "{text}");
        assert!(mistake.expected.contains(expected), "{text}: {mistake}");
    }
}

#[test]
fn base_cycles_and_unknown_bases_are_reported_per_profile() {
    let seen = errors_of(&with_listener(
        "[profile.a]\nbase = \"b\"\n[profile.b]\nbase = \"a\"\n[profile.c]\nbase = \"b\"\n[profile.d]\nbase = \"none\"\n[profile.e]\nbase = \"d\"",
    ));
    let keys: Vec<_> = seen.iter().map(|m| m.key.as_str()).collect();
    assert_eq!(keys, ["profile.a.base", "profile.b.base", "profile.d.base"]);
}

#[test]
fn missing_listener_error_shows_an_example() {
    for shown in [from_text("version = 1").unwrap_err().to_string(), flag_error(&Flags::default())] {
        assert!(shown.contains("[[listener]]") && shown.contains("-L auto://127.0.0.1:1080"), "{shown}");
    }
}

#[test]
fn toml_syntax_errors_name_lines_without_follow_up_errors() {
    let text =
        "version = 1\nthreads = \n[[listener]]\nbind = \"127.0.0.1:1080\nkind = \"auto\"\n[limits]\nhead = \"1B\"\n";
    let seen = errors_of(text);
    let lines: Vec<_> = seen.iter().map(|m| (m.line, m.found == FoundValue::Syntax)).collect();
    assert_eq!(lines.first(), Some(&(Some(2), true)), "{seen:#?}");
    assert!(lines.contains(&(Some(4), true)), "{seen:#?}");
    assert!(seen.iter().any(|m| m.key == "limits.head" && m.line == Some(7)), "{seen:#?}");
    assert!(!seen.iter().any(|m| m.found == FoundValue::Missing), "{seen:#?}");
    let twice = errors_of("version = 1\nversion = 1\n[[listener]]\nbind = \":1\"\n");
    assert_eq!((twice.len(), twice[0].line), (1, Some(2)), "{twice:#?}");
}

#[test]
fn unreadable_file_is_an_error() {
    let shown = load(Some(Path::new("/nonexistent.toml")), &Flags::default()).unwrap_err().to_string();
    assert!(shown.starts_with("/nonexistent.toml: expected a readable file"), "{shown}");
}

#[test]
fn errors_suggest_the_intended_unit() {
    for (text, expected) in [
        ("[timeouts]\nidle = \"5m\"", "write \"5min\""),
        ("[timeouts]\nidle = \"90 sec\"", "write \"90s\""),
        ("[timeouts]\nidle = \"2 hours\"", "write \"2h\""),
        ("[limits]\nhead = \"64k\"", "write \"64KiB\""),
        ("[profile.x]\nsndbuf = \"4M\"", "write \"4MiB\""),
        ("[profile.x]\nrto_min = \"40msec\"", "write \"40ms\""),
        ("[profile.x]\npacing_rate = \"100Mbps\"", "write \"100Mbit/s\""),
        ("[profile.x]\npacing_rate = \"12.5MB/s\"", "write \"100Mbit/s\""),
        ("[[interface]]\nname = \"lo\"\nrate = \"1G\"", "write \"1Gbit/s\""),
        ("[history]\nfile = \"h.db\"\nkeep = \"90 days\"", "write \"90d\""),
    ] {
        let seen = errors_of(&with_listener(text));
        let [mistake] = &seen[..] else { panic!("{text}: {seen:#?}") };
        assert!(mistake.expected.ends_with(expected), "{text}: {mistake}");
    }
    for text in ["[timeouts]\nidle = \"5 parsecs\"", "[timeouts]\nidle = \"m\"", "[timeouts]\nidle = \"30\""] {
        let seen = errors_of(&with_listener(text));
        assert!(!seen[0].expected.contains("write"), "{text}: {seen:#?}");
    }
}

/// Regression: the keys that are read last were reported as unknown.
#[test]
fn a_wrong_address_hides_no_other_key_of_the_listener() {
    let errors = errors_of(
        "version = 1\n[[listener]]\nbind = \"127.0.0.1\"\nrate = \"10Mbit/s\"\nsessions = 5\nweight = 2\npac = false\n",
    );
    let keys: Vec<_> = errors.into_iter().map(|error| error.key).collect();
    assert_eq!(keys, ["listener[1].bind"]);
}
