//! Whole configurations, valid and invalid.

mod errors;
mod example;
mod files;
mod listeners;
mod peers;
mod relays;
mod routes;
mod sections;
mod sharing;
mod transparent;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ekiden_proto::key::PublicKey;
use ekiden_proto::profile::Setting;
use ekiden_proto::wire::proxy_protocol::ProxyVersion;

use super::*;
use crate::config::{AccountLimits, AdminBind, Hop, HopKind, Listener, ListenerKind, LogFormat, Resolve, TracesConfig};

fn listen(urls: &[&str]) -> Flags {
    Flags { listen: urls.iter().map(|url| (*url).to_owned()).collect(), ..Flags::default() }
}

fn forwarding(urls: &[&str]) -> Flags {
    Flags { forward: urls.iter().map(|url| (*url).to_owned()).collect(), ..listen(&["auto://:1080"]) }
}

fn errors_of(text: &str) -> Vec<ConfigError> {
    from_text(text).expect_err(text).0
}

fn valid_config(text: &str) -> Config {
    from_text(text).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

/// The public key of a new private key.
fn random_public_key() -> PublicKey {
    PrivateKey::generate().public_key()
}

fn flag_error(flags: &Flags) -> String {
    load(None, flags).expect_err("the flags were accepted").to_string()
}

fn with_listener(text: &str) -> String {
    format!("version = 1\n{text}\n[[listener]]\nbind = \"127.0.0.1:1080\"\n")
}

/// A temporary file, removed at the end of the test.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str, content: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let (process, number) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("ekiden-config-{process}-{number}-{name}"));
        fs::write(&path, content).unwrap();
        Self(path)
    }

    /// A key file with a new key.
    fn key(name: &str) -> (Self, PublicKey) {
        let key = PrivateKey::generate();
        let file = Self::new(name, &format!("private-key: {}\n", key.to_base64().as_str()));
        file.allow(0o600);
        (file, key.public_key())
    }

    fn allow(&self, mode: u32) {
        fs::set_permissions(&self.0, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
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
fn all_settings_of_a_full_config_are_applied() {
    let config = from_text(FULL).unwrap_or_else(|e| panic!("{e}"));
    let [first, second] = default_hops(&config) else { panic!("{:?}", config.routes) };
    assert_eq!(first.to_string(), "socks5://hop.example:1080");
    assert_eq!(credentials(first), ("u", "p@ss"));
    assert_eq!((second.to_string().as_str(), second.profile.name.as_str()), ("http://[2001:db8::1]:3128", "longhaul"));
    let [front, fixed] = &config.listeners[..] else { panic!("{:?}", config.listeners) };
    assert_eq!((front.name.as_str(), front.kind, front.access.allow_private), ("front", ListenerKind::Socks, false));
    assert_eq!(
        front.access.allow.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["*.example.com:443", "2001:db8::/32"]
    );
    assert_eq!(
        (fixed.name.as_str(), fixed.access.allow_private, fixed.profile.name.as_str()),
        ("tcp-2222", true, "satellite")
    );
    assert_eq!(fixed.target.as_ref().map(ToString::to_string).as_deref(), Some("server.example:22"));
    let mine = config.routes.last().unwrap().profile.settings();
    assert!(mine.contains(&Setting::Mss(1200)) && mine.contains(&Setting::Nodelay(false)), "{mine:?}");
    assert!(mine.iter().any(|s| s.to_string() == "rto_max = 10s"), "the base is lost: {mine:?}");
    let limits = LimitsConfig {
        sessions: Some(10),
        sessions_per_client: Some(2),
        head: 4096,
        kept_connections: 0,
        ready_connections: 5,
        usage_file: None,
    };
    assert_eq!((&config.limits, config.timeouts.idle, config.threads), (&limits, Duration::from_secs(90), 3));
    assert_eq!(config.timeouts.ready_age, Duration::from_secs(5));
    let servers: Vec<_> = config.dns_servers.iter().map(SocketAddr::to_string).collect();
    assert_eq!(servers, ["127.0.0.1:5353", "192.0.2.1:53", "[2001:db8::53]:53"]);
    let admin = AdminBind::Tcp("127.0.0.1:9090".parse().unwrap());
    assert_eq!((config.admin.bind, config.log.format), (admin, LogFormat::Json));
}

/// The hops of the last route, which is for targets without a route of their own.
fn default_hops(config: &Config) -> &[Arc<Hop>] {
    &config.routes.last().unwrap().paths[0].hops
}

fn credentials(hop: &Hop) -> (&str, &str) {
    match &hop.kind {
        HopKind::Socks5(Some(login)) | HopKind::Http(Some(login)) => (&login.user, &login.password),
        other => panic!("{other:?}"),
    }
}

fn only_listener(config: &Config) -> &Listener {
    assert_eq!(config.listeners.len(), 1);
    &config.listeners[0]
}

#[test]
fn flags_override_the_file() {
    let file = Scratch::new("beaten", &with_listener("forward = [\"http://a.example:1\"]\n[log]\nformat = \"json\""));
    let flags = Flags {
        log: Some("text".into()),
        admin: Some("off".into()),
        forward: vec!["socks5://b.example:2".into()],
        ..listen(&["http://:3128"])
    };
    let config = load([&*file.0], &flags).unwrap();
    assert_eq!(only_listener(&config).bind.port(), 3128);
    assert_eq!(default_hops(&config).iter().map(|hop| hop.to_string()).collect::<Vec<_>>(), ["socks5://b.example:2"]);
    assert_eq!((config.log.format, config.admin.bind), (LogFormat::Text, AdminBind::Off));
    let config = load([&*file.0], &Flags::default()).unwrap();
    assert_eq!((only_listener(&config).bind.port(), config.log.format), (1080, LogFormat::Json));
}

fn traces_config(lines: &str) -> TracesConfig {
    valid_config(&with_listener(&format!("[traces]\n{lines}"))).traces.expect("there is a collector")
}

#[test]
fn traces_are_off_without_a_collector() {
    assert!(valid_config(&with_listener("")).traces.is_none());
}

#[test]
fn collector_url_defaults_to_the_otlp_port_and_path() {
    for (url, address, path) in [
        ("http://127.0.0.1", "127.0.0.1:4318", ""),
        ("http://127.0.0.1:4318/", "127.0.0.1:4318", ""),
        ("http://collector.example:80/otlp/", "collector.example:80", "/otlp"),
        ("http://[::1]:4318/v1/traces", "[::1]:4318", ""),
        ("http://collector/a/b/v1/traces", "collector:4318", "/a/b"),
    ] {
        let traces = traces_config(&format!("endpoint = \"{url}\""));
        assert_eq!((traces.collector.address.to_string().as_str(), traces.collector.path.as_str()), (address, path));
    }
}

#[test]
fn traces_default_to_all_sessions_without_client_addresses() {
    let usual = traces_config("endpoint = \"http://c\"");
    assert!((usual.sample_ratio.0 - 1.0).abs() < f64::EPSILON && !usual.client_address && !usual.name.is_empty());
    let other = traces_config("endpoint = \"http://c\"\nsample = 0\nclient_address = true\nname = \"tokyo\"");
    assert!(other.sample_ratio.0.abs() < f64::EPSILON && other.client_address);
    assert_eq!(other.name, "tokyo");
}

#[test]
fn invalid_trace_settings_are_reported() {
    for (lines, key, word) in [
        ("", "traces.endpoint", "http://127.0.0.1:4318"),
        ("endpoint = \"https://c:4318\"", "traces.endpoint", "for https"),
        ("endpoint = \"c:4318\"", "traces.endpoint", "http://"),
        ("endpoint = \"http://\"", "traces.endpoint", "http://"),
        ("endpoint = \"http://c:0\"", "traces.endpoint", "http://"),
        ("endpoint = \"http://u:p@c\"", "traces.endpoint", "http://"),
        ("endpoint = \"http://c/a b\"", "traces.endpoint", "http://"),
        ("endpoint = \"http://c/?a=b\"", "traces.endpoint", "http://"),
        ("endpoint = \"http://c\"\nsample = 1.5", "traces.sample", "from 0 to 1"),
        ("endpoint = \"http://c\"\nsample = \"half\"", "traces.sample", "from 0 to 1"),
        ("endpoint = \"http://c\"\nname = \"to kyo\"", "traces.name", "a name"),
        ("endpoint = \"http://c\"\nport = 1", "traces.port", "endpoint"),
    ] {
        let mistakes = errors_of(&with_listener(&format!("[traces]\n{lines}")));
        assert_eq!(mistakes.len(), 1, "{lines}: {mistakes:?}");
        assert_eq!(mistakes[0].key, key, "{lines}");
        assert!(mistakes[0].expected.contains(word), "{lines}: {}", mistakes[0].expected);
    }
}
