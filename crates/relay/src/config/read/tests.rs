//! The reading of whole configurations: what is right, and what is said about what is not.

use std::net::SocketAddr;
use std::time::Duration;

use ekiden_proto::profile::Setting;

use super::*;
use crate::config::{Hop, HopKind, Kind, Listener};

const EXAMPLE: &str = include_str!("../../../../../ekiden.example.toml");

fn listen(urls: &[&str]) -> Flags {
    Flags { listen: urls.iter().map(|url| (*url).to_owned()).collect(), ..Flags::default() }
}

fn forwarding(urls: &[&str]) -> Flags {
    Flags { forward: urls.iter().map(|url| (*url).to_owned()).collect(), ..listen(&["auto://:1080"]) }
}

fn mistakes(text: &str) -> Vec<Mistake> {
    from_text(text).expect_err(text).0
}

fn flag_mistake(flags: &Flags) -> String {
    load(None, flags).expect_err("it was taken").to_string()
}

fn with_listener(text: &str) -> String {
    format!("version = 1\n{text}\n[[listener]]\nbind = \"127.0.0.1:1080\"\n")
}

/// A temporary file that goes when the test does.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str, content: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ekiden-config-{}-{name}", std::process::id()));
        fs::write(&path, content).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn the_example_is_the_defaults() {
    let written = from_text(EXAMPLE).unwrap_or_else(|e| panic!("{e}"));
    let bare = from_text(&with_listener("")).unwrap();
    let shown = |config: &Config| format!("{config:?}");
    assert_eq!(shown(&written), shown(&bare));
}

/// The example cannot rot: each key that the reader knows stands in it, in use or as a comment.
#[test]
fn the_example_has_every_key() {
    let all: String = EXAMPLE
        .lines()
        .map(|line| {
            let commented =
                line.strip_prefix('#').filter(|rest| rest.starts_with(|c: char| c == '[' || c.is_ascii_lowercase()));
            format!("{}\n", commented.unwrap_or(line))
        })
        .collect();
    let example = DeTable::parse(&all).unwrap_or_else(|e| panic!("{e}"));
    let probe = "zzzzzzzz = 1\n";
    let mut text = format!("version = 1\n{probe}");
    for table in [
        "[[listener]]",
        "[[relay]]",
        "[[path]]",
        "[[route]]",
        "[limits]",
        "[timeouts]",
        "[profile.example]",
        "[dns]",
        "[admin]",
        "[log]",
    ] {
        text += &format!("{table}\n{probe}");
    }
    let unknown: Vec<_> = mistakes(&text).into_iter().filter(|m| m.found == Found::Unknown).collect();
    assert_eq!(unknown.len(), 11, "{unknown:?}");
    for mistake in unknown {
        let path = mistake.key.trim_end_matches("zzzzzzzz").replace("[1]", "");
        for key in mistake.expected.strip_prefix("one of ").unwrap().split(", ") {
            let steps: Vec<_> = path.split_terminator('.').chain([key]).collect();
            assert!(has(example.get_ref(), &steps), "{path}{key} is not in ekiden.example.toml");
        }
    }
    for key in ["key", "profile", "password_file", "password_env"] {
        assert!(EXAMPLE.contains(&format!("?{key}=")), "?{key}= of a hop is not in ekiden.example.toml");
    }
}

fn has(table: &DeTable<'_>, steps: &[&str]) -> bool {
    let Some(value) = table.get(steps[0]).map(toml::Spanned::get_ref) else { return false };
    let inner = value.as_array().and_then(|list| list.first()).map_or(value, |first| first.get_ref());
    steps.len() == 1 || inner.as_table().is_some_and(|table| has(table, &steps[1..]))
}

const FULL: &str = r#"
version = 1
forward = ["socks5h://u:p%40ss@hop.example:1080", "http://[2001:db8::1]:3128?profile=longhaul"]
target_profile = "mine"
threads = 3
[[listener]]
name = "front"
bind = "0.0.0.0:1080"
kind = "socks"
allow_open = true
allow = ["*.example.com:443", "2001:db8::/32"]
deny = ["*:25"]
[[listener]]
bind = "[::1]:2222"
kind = "tcp"
target = "server.example:22"
profile = "satellite"
[limits]
sessions = 10
sessions_per_client = 2
head = "4KiB"
kept_connections = 0
ready_connections = 5
[timeouts]
idle = "90s"
ready_age = "5s"
[profile.mine]
base = "longhaul"
mss = 1200
nodelay = false
congestion = "cubic"
[dns]
servers = ["127.0.0.1:5353", "192.0.2.1", "2001:db8::53"]
[admin]
bind = "127.0.0.1:9090"
[log]
format = "json"
"#;

#[test]
fn everything_written_is_meant() {
    let config = from_text(FULL).unwrap_or_else(|e| panic!("{e}"));
    let [first, second] = forward(&config) else { panic!("{:?}", config.routes) };
    assert_eq!(first.to_string(), "socks5://hop.example:1080");
    assert_eq!(credentials(first), ("u", "p@ss"));
    assert_eq!((second.to_string().as_str(), second.profile.name.as_str()), ("http://[2001:db8::1]:3128", "longhaul"));
    let [front, fixed] = &config.listeners[..] else { panic!("{:?}", config.listeners) };
    assert_eq!((front.name.as_str(), front.kind, front.access.allow_private), ("front", Kind::Socks, false));
    assert_eq!(
        front.access.allow.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["*.example.com:443", "2001:db8::/32"]
    );
    assert_eq!(
        (fixed.name.as_str(), fixed.access.allow_private, fixed.profile.name.as_str()),
        ("tcp-2222", true, "satellite")
    );
    assert_eq!(fixed.target.as_ref().map(ToString::to_string).as_deref(), Some("server.example:22"));
    let mine = config.target_profile.settings();
    assert!(mine.contains(&Setting::Mss(1200)) && mine.contains(&Setting::Nodelay(false)), "{mine:?}");
    assert!(mine.iter().any(|s| s.to_string() == "rto_max = 10s"), "the base is lost: {mine:?}");
    let limits = Limits {
        sessions: Some(10),
        sessions_per_client: Some(2),
        head: 4096,
        kept_connections: 0,
        ready_connections: 5,
    };
    assert_eq!((&config.limits, config.timeouts.idle, config.threads), (&limits, Duration::from_secs(90), 3));
    assert_eq!(config.timeouts.ready_age, Duration::from_secs(5));
    let servers: Vec<_> = config.dns_servers.iter().map(SocketAddr::to_string).collect();
    assert_eq!(servers, ["127.0.0.1:5353", "192.0.2.1:53", "[2001:db8::53]:53"]);
    assert_eq!((config.admin, config.log), (Admin::Tcp("127.0.0.1:9090".parse().unwrap()), LogFormat::Json));
}

#[test]
fn all_mistakes_are_told_at_once() {
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
    let seen: Vec<_> = mistakes(text).into_iter().map(|m| (m.line.unwrap_or(0), m.key, m.found)).collect();
    let value = |text: &str| Found::Value(text.to_owned());
    let expected = [
        (1, "version", value("2")),
        (2, "threads", value("0")),
        (3, "target_profile", value("\"longhall\"")),
        (4, "forward[1]", Found::Hidden),
        (4, "forward[2]", Found::Hidden),
        (6, "listener[1].bind", value("\"127.0.0.1\"")),
        (7, "listener[1].kind", value("\"sock\"")),
        (8, "listener[1].allow_privat", Found::Unknown),
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
    // Within a line the order is that of the checks.
    seen.sort_by_key(|m| (m.0, m.1.clone()));
    expected.sort_by_key(|m| (m.0, m.1.clone()));
    assert_eq!(seen, expected);
    let shown = from_text(text).unwrap_err().to_string();
    assert_eq!(shown.lines().count(), expected.len());
    for part in [
        "configuration:3: target_profile = \"longhall\": expected a profile: \"longhaul\", perhaps",
        "configuration:8: listener[1].allow_privat is not a key: expected \"allow_private\", perhaps; known are ",
        "configuration:19: relay = {...}: expected tables that begin with [[relay]]",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
}

#[test]
fn one_mistake_each() {
    let second = "[[listener]]\nbind = \"127.0.0.1:1081\"\n";
    for (text, key, says) in [
        ("", "version", "version = 1"),
        ("version = \"1\"", "version", "version = 1"),
        ("listener = 5", "listener", "[[listener]]"),
        ("forward = \"http://h:1\"", "forward", "a list in [ ]"),
        ("limits = 5", "limits", "a table [limits]"),
        ("[dns]\nservers = \"192.0.2.1\"", "dns.servers", "a list in [ ]"),
        ("[dns]\nservers = [\"dns.example\"]", "dns.servers[1]", "the address of a name server"),
        ("[profile.a]\nbase = \"b\"", "profile.a.base", "one of lan, longhaul, lossy, satellite, a"),
        ("[profile.a]\nbase = \"a\"", "profile.a.base", "not built on this one again"),
        ("[profile.lan]\nmss = 1", "profile.lan", "a built-in profile"),
        ("[profile]\nx = 1", "profile.x", "a table [profile.NAME]"),
        ("[profile.a]\nnagle = true", "profile.a.nagle", "one of base, bind"),
        ("[profile.a]\nmss = 1.5", "profile.a.mss", "a whole number"),
        ("[profile.a]\nrto_min = 40", "profile.a.rto_min", "a time like"),
        ("[admin]\nbind = \"127.0.0.1:1081\"\n[[listener]]\nbind = \":1081\"", "admin.bind", "that no listener has"),
        ("[[listener]]\nbind = \":1080\"\n[[listener]]\nbind = \":1080\"", "listener[2].bind", "no other listener"),
        ("[[listener]]\nkind = \"http\"", "listener[1].bind", "an address and port"),
        ("[[listener]]\nbind = \":1\"\nkind = \"tproxy\"", "listener[1].kind", "not in this version yet"),
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
            "this is a loop",
        ),
        (
            "[[listener]]\nname = \"a\"\nbind = \":1\"\n[[listener]]\nname = \"a\"\nbind = \":2\"",
            "listener[2].name",
            "no other listener",
        ),
    ] {
        let version = if key == "version" { "" } else { "version = 1\n" };
        let listener = if text.contains("listener") { "" } else { second };
        let seen = mistakes(&format!("{version}{text}\n{listener}"));
        let [mistake] = &seen[..] else { panic!("{text}: {seen:#?}") };
        assert_eq!(mistake.key, key, "{text}");
        assert!(mistake.expected.contains(says), "{text}: {mistake}");
    }
}

#[test]
fn profiles_that_are_built_on_each_other_are_each_told() {
    let seen = mistakes(&with_listener(
        "[profile.a]\nbase = \"b\"\n[profile.b]\nbase = \"a\"\n[profile.c]\nbase = \"b\"\n[profile.d]\nbase = \"none\"\n[profile.e]\nbase = \"d\"",
    ));
    let keys: Vec<_> = seen.iter().map(|m| m.key.as_str()).collect();
    assert_eq!(keys, ["profile.a.base", "profile.b.base", "profile.d.base"]);
}

#[test]
fn no_listener_is_a_mistake_with_an_example() {
    for shown in [from_text("version = 1").unwrap_err().to_string(), flag_mistake(&Flags::default())] {
        assert!(shown.contains("[[listener]]") && shown.contains("-L auto://127.0.0.1:1080"), "{shown}");
    }
}

#[test]
fn broken_toml_is_told_by_line_without_echoes() {
    let text =
        "version = 1\nthreads = \n[[listener]]\nbind = \"127.0.0.1:1080\nkind = \"auto\"\n[limits]\nhead = \"1B\"\n";
    let seen = mistakes(text);
    let lines: Vec<_> = seen.iter().map(|m| (m.line, m.found == Found::Syntax)).collect();
    assert_eq!(lines.first(), Some(&(Some(2), true)), "{seen:#?}");
    assert!(lines.contains(&(Some(4), true)), "{seen:#?}");
    assert!(seen.iter().any(|m| m.key == "limits.head" && m.line == Some(7)), "{seen:#?}");
    assert!(!seen.iter().any(|m| m.found == Found::Missing), "{seen:#?}");
    let twice = mistakes("version = 1\nversion = 1\n[[listener]]\nbind = \":1\"\n");
    assert_eq!((twice.len(), twice[0].line), (1, Some(2)), "{twice:#?}");
}

#[test]
fn loops_are_found() {
    for (bind, hop, is_loop) in [
        ("127.0.0.1:1080", "127.0.0.1:1080", true),
        ("127.0.0.1:1080", "localhost:1080", true),
        ("127.0.0.1:1080", "[::ffff:127.0.0.1]:1080", true),
        ("0.0.0.0:1080", "127.0.0.1:1080", true),
        ("[::]:1080", "localhost:1080", true),
        ("127.0.0.1:1080", "0.0.0.0:1080", true),
        ("127.0.0.1:1080", "127.0.0.1:1081", false),
        ("127.0.0.1:1080", "192.0.2.1:1080", false),
        ("192.0.2.1:1080", "127.0.0.1:1080", false),
    ] {
        let text =
            format!("version = 1\nforward = [\"http://{hop}\"]\n[[listener]]\nbind = \"{bind}\"\nallow_open = true\n");
        let read = from_text(&text);
        assert_eq!(read.is_err(), is_loop, "{bind} {hop}");
        if let Err(mistakes) = read {
            assert!(mistakes.to_string().contains("configuration:2: forward[1]"), "{mistakes}");
        }
    }
}

/// The hops of all targets that no route is for.
fn forward(config: &Config) -> &[Arc<Hop>] {
    &config.routes.last().unwrap().paths[0].hops
}

fn credentials(hop: &Hop) -> (&str, &str) {
    match &hop.kind {
        HopKind::Socks5(Some(said)) | HopKind::Http(Some(said)) => (&said.user, &said.password),
        other => panic!("{other:?}"),
    }
}

fn only(config: &Config) -> &Listener {
    assert_eq!(config.listeners.len(), 1);
    &config.listeners[0]
}

#[test]
fn listener_urls_are_read_as_tables() {
    for (url, kind, bind, name, private) in [
        ("auto://127.0.0.1:1080", Kind::Auto, "127.0.0.1:1080", "auto-1080", true),
        ("socks://:1080", Kind::Socks, "127.0.0.1:1080", "socks-1080", true),
        ("http://localhost:3128/?name=web", Kind::Http, "127.0.0.1:3128", "web", true),
        ("http://[::]:3128?allow_open=true", Kind::Http, "[::]:3128", "http-3128", false),
        ("auto://0.0.0.0:0?allow_open=true&allow_private=true", Kind::Auto, "0.0.0.0:0", "auto-0", true),
        ("tcp://:2222/server.example:22", Kind::Tcp, "127.0.0.1:2222", "tcp-2222", true),
    ] {
        let config = load(None, &listen(&[url])).unwrap_or_else(|e| panic!("{e}"));
        let listener = only(&config);
        assert_eq!(
            (listener.kind, listener.bind.to_string().as_str(), listener.name.as_str(), listener.access.allow_private),
            (kind, bind, name, private),
            "{url}"
        );
        assert_eq!(listener.target.is_some(), kind == Kind::Tcp);
    }
    let config = load(None, &listen(&["auto://:1?deny=*:25&deny=10.0.0.0%2F8&allow=*&profile=lossy"])).unwrap();
    assert_eq!((only(&config).access.deny.len(), only(&config).access.allow.len()), (2, 1));
    assert_eq!(only(&config).profile.name, "lossy");
    let config = load(None, &listen(&["auto://127.0.0.1:0", "auto://127.0.0.1:0"])).unwrap();
    assert_eq!(config.listeners[1].name, "auto-0-2");
}

#[test]
fn wrong_flags_are_told() {
    for (url, says) in [
        ("127.0.0.1:1080", "command line: -L[1] = \"127.0.0.1:1080\": expected a listener like auto://"),
        ("auto://0.0.0.0:1080", "command line: -L[1].bind = \"0.0.0.0:1080\": expected a loopback address"),
        ("ftp://:21", "command line: -L[1].kind = \"ftp\": expected one of \"auto\""),
        ("tproxy://:21", "not in this version yet"),
        ("auto://:1080?profil=lan", "-L[1].profil is not a key: expected \"profile\", perhaps"),
        ("auto://:1080?allow_open=yes", "-L[1].allow_open = \"yes\": expected true or false"),
        ("auto://:1080?bind=:1081", "-L[1].bind = [...]: expected an address"),
        ("auto://:1080/host:1", "-L[1].target = \"host:1\": expected no target"),
        ("tcp://:1080", "-L[1].target is missing: expected a host and port"),
    ] {
        let shown = flag_mistake(&listen(&[url]));
        assert!(shown.contains(says), "{url}: {shown}");
    }
    let shown = flag_mistake(&Flags { log: Some("xml".into()), admin: Some("on".into()), ..listen(&["auto://:1"]) });
    assert!(shown.contains("--log = \"xml\"") && shown.contains("--admin = \"on\""), "{shown}");
}

#[test]
fn flags_beat_the_file() {
    let file = Scratch::new("beaten", &with_listener("forward = [\"http://a.example:1\"]\n[log]\nformat = \"json\""));
    let flags = Flags {
        log: Some("text".into()),
        admin: Some("off".into()),
        forward: vec!["socks5://b.example:2".into()],
        ..listen(&["http://:3128"])
    };
    let config = load(Some(&file.0), &flags).unwrap();
    assert_eq!(only(&config).bind.port(), 3128);
    assert_eq!(forward(&config).iter().map(|hop| hop.to_string()).collect::<Vec<_>>(), ["socks5://b.example:2"]);
    assert_eq!((config.log, config.admin), (LogFormat::Text, Admin::Off));
    let config = load(Some(&file.0), &Flags::default()).unwrap();
    assert_eq!((only(&config).bind.port(), config.log), (1080, LogFormat::Json));
}

#[test]
fn a_file_that_cannot_be_read_is_a_mistake() {
    let shown = load(Some(Path::new("/nonexistent.toml")), &Flags::default()).unwrap_err().to_string();
    assert!(shown.starts_with("/nonexistent.toml: expected a readable file"), "{shown}");
}

#[test]
fn wrong_hops_are_told_without_their_secret() {
    const SECRET: &str = "hunter2";
    for (url, says) in [
        ("socks5://u:hunter2@h", "a hop like"),
        ("socks5://u:hunter2", "a hop like"),
        ("u:hunter2@h:1", "a hop like"),
        ("ftp://u:hunter2@h:1", "a hop like"),
        ("socks5://u:hunter2@h:1/path", "a hop like"),
        ("socks5://u:a?hunter2@h:1", "a hop like"),
        ("socks5://u:%ffhunter2@h:1", "a hop like"),
        ("http://u%3aa:hunter2@h:1", "without a colon"),
        ("socks5://:hunter2@h:1", "1 to 255 bytes"),
        ("socks5://u:@h:1", "1 to 255 bytes"),
        ("socks5://u@h:1", "one password"),
        ("socks5://u:hunter2@h:1?password_file=/x", "one password"),
        ("socks5://h:1?password_file=/x", "a user name before the host"),
        ("socks5://u@h:1?password_file=/nonexistent", "a file with the password in it"),
        ("socks5://u@h:1?password_env=EKIDEN_NO_SUCH_VARIABLE", "an environment variable"),
        ("socks5://u:hunter2@h:1?profile=lam", "\"lan\", perhaps"),
        ("socks5://u:hunter2@h:1?profil=lan", "\"profile\", perhaps"),
        ("socks5://u:hunter2@127.0.0.1:1080", "this is a loop"),
    ] {
        let in_file = mistakes(&with_listener(&format!("forward = [\"{url}\"]")));
        let shown = flag_mistake(&forwarding(&[url]));
        assert!(shown.contains(says), "{url}: {shown}");
        assert_eq!((in_file.len(), in_file[0].line), (1, Some(2)), "{url}: {in_file:#?}");
        assert!(!shown.contains(SECRET) && !format!("{in_file:?}").contains(SECRET), "{url}: {shown}");
    }
    for text in [
        "forward = \"socks5://u:hunter2@h:1\"",
        "forward = [[\"socks5://u:hunter2@h:1\"]]",
        "forward = [\"socks5://u:hunter2@h:1",
        "password = \"hunter2\"",
        "[admin]\npassword = \"hunter2\"",
    ] {
        let shown = format!("{:?}", mistakes(&with_listener(text)));
        assert!(!shown.contains(SECRET), "{shown}");
    }
    let shown = flag_mistake(&listen(&["socks://u:hunter2@:1080"]));
    assert!(shown.contains("?users=FILE") && !shown.contains(SECRET), "{shown}");
}

#[test]
fn hop_passwords_come_from_files_and_variables() {
    let file = Scratch::new("password", "from file \r\n");
    // Set by cargo for every test.
    let inherited = std::env::var("CARGO_PKG_NAME").unwrap();
    for (url, password) in [
        ("socks5://u:hunter2@h:1".to_owned(), "hunter2"),
        ("http://u:@h:1".to_owned(), ""),
        (format!("socks5://u@h:1?password_file={}", file.0.display()), "from file "),
        ("http://u@h:1?password_env=CARGO_PKG_NAME".to_owned(), inherited.as_str()),
    ] {
        let config = load(None, &forwarding(&[&url])).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(credentials(&forward(&config)[0]), ("u", password));
        let shown = format!("{config:?} {}", forward(&config)[0]);
        assert!(shown.contains("Credentials") && !shown.contains("hunter2") && !shown.contains("from file"), "{shown}");
    }
}

#[test]
fn users_are_loaded_once_and_their_mistakes_told_by_line() {
    let hash = bcrypt::hash("hunter2", 4).unwrap();
    let file = Scratch::new("users", &format!("alice:{hash}\n"));
    let urls = [9001, 9002].map(|port| format!("auto://0.0.0.0:{port}?users={}", file.0.display()));
    let config = load(None, &listen(&[&urls[0], &urls[1]])).unwrap_or_else(|e| panic!("{e}"));
    let [Some(first), Some(second)] = [0, 1].map(|n| config.listeners[n].users.clone()) else { panic!("no users") };
    assert!(Arc::ptr_eq(&first, &second), "what is verified is not shared");
    assert!(!format!("{config:?}").contains(&hash));

    let file = Scratch::new("bad-users", "\nalice:plain-hunter2\nbob:$apr1$x$y\n");
    let text = format!("version = 1\n[[listener]]\nbind = \"0.0.0.0:1\"\nusers = {:?}\n", file.0.display().to_string());
    let shown = from_text(&text).unwrap_err().to_string();
    let name = file.0.display();
    assert!(shown.contains(&format!("{name}:2: expected a bcrypt hash")), "{shown}");
    assert!(shown.contains(&format!("{name}:3: expected a bcrypt hash")), "{shown}");
    assert!(shown.contains("htpasswd -B") && !shown.contains("hunter2") && shown.lines().count() == 2, "{shown}");
}

#[test]
fn a_tcp_listener_cannot_have_users() {
    let seen = flag_mistake(&listen(&["tcp://:1/h:1?users=/nonexistent"]));
    assert!(seen.contains("no way to ask who somebody is"), "{seen}");
}
