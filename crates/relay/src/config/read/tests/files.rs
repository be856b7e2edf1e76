//! Configurations of several files, and variables of the environment.

use super::*;

/// A directory with files, removed at the end of the test.
struct Fragments(std::path::PathBuf);

impl Fragments {
    fn new(files: &[(&str, &str)]) -> Self {
        let place = Scratch::new("fragments", "");
        fs::remove_file(&place.0).unwrap();
        fs::create_dir(&place.0).unwrap();
        let fragments = Self(place.0.clone());
        files.iter().for_each(|(name, text)| fragments.write(name, text));
        fragments
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    fn load(&self) -> Result<Config, String> {
        load([&*self.0], &Flags::default()).map_err(|mistakes| self.shorten(&mistakes.to_string()))
    }

    fn shorten(&self, message: &str) -> String {
        message.replace(&format!("{}/", self.0.display()), "")
    }
}

impl Drop for Fragments {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A variable that cargo sets for every test, and its value.
const VARIABLE: (&str, &str) = ("CARGO_PKG_NAME", env!("CARGO_PKG_NAME"));

#[test]
fn files_are_merged_in_the_order_of_their_names() {
    let listener = |port| format!("version = 1\n[[listener]]\nbind = \"127.0.0.1:{port}\"\n");
    let fragments = Fragments::new(&[
        ("20-b.toml", &format!("{}[limits]\nsessions = 7\n[profile.own]\nbase = \"lan\"\n", listener(1082))),
        ("10-a.toml", &format!("threads = 3\n{}[limits]\nsessions_per_client = 2\n", listener(1081))),
        ("30-c.toml", "version = 1\n[profile.own]\nnodelay = true\n[profile.other]\n"),
        (".20-b.toml", "not TOML"),
        ("40-d.toml.orig", "not TOML"),
    ]);
    let config = fragments.load().unwrap_or_else(|message| panic!("{message}"));
    let ports: Vec<_> = config.listeners.iter().map(|listener| listener.bind.port()).collect();
    assert_eq!((ports, config.threads), (vec![1081, 1082], 3));
    assert_eq!(
        (config.limits.sessions.map(|n| n as u64), config.limits.sessions_per_client.map(|n| n as u64)),
        (Some(7), Some(2))
    );

    let paths = ["30-c.toml", "20-b.toml", "10-a.toml"].map(|name| fragments.0.join(name));
    let config = load(paths.iter().map(|path| &**path), &Flags::default()).unwrap();
    let ports: Vec<_> = config.listeners.iter().map(|listener| listener.bind.port()).collect();
    assert_eq!(ports, [1082, 1081], "the order of the arguments");
}

#[test]
fn a_mistake_names_the_file_and_the_line() {
    let fragments = Fragments::new(&[
        ("a.toml", "version = 1\n\n[[listener]]\nbind = \"127.0.0.1:1\"\n[limits]\nsessions = 1\nhead = 64\n"),
        (
            "b.toml",
            "version = 1\n[limits]\nnothing = 1\nsessions = 2\n[[listener]]\nbind = 5\n[dns]\nservers = [\n  \"x\"]",
        ),
    ]);
    let message = fragments.load().unwrap_err();
    let places: Vec<_> = message.lines().map(|line| line.split_once(':').unwrap()).collect();
    let places: Vec<_> =
        places.iter().map(|(file, rest)| (*file, rest.split([' ', '=']).take(2).collect::<String>())).collect();
    let expected = [
        ("a.toml", "7:limits.head"),
        ("b.toml", "3:limits.nothing"),
        ("b.toml", "4:limits.sessions"),
        ("b.toml", "6:listener[2].bind"),
        ("b.toml", "9:dns.servers[1]"),
    ];
    let mut sorted: Vec<_> = places.iter().map(|(file, place)| (*file, place.as_str())).collect();
    sorted.sort_unstable();
    assert_eq!(sorted, expected, "{message}");

    fragments.write("a.toml", "version = 1\n[[listener]]\nbind = \"127.0.0.1:1\"\nx = = 1\n");
    fragments.write("b.toml", "version = 1\n\n\nforward = [\"socks5://u:hunter2\n");
    let message = fragments.load().unwrap_err();
    assert!(message.contains("a.toml:4: not TOML") && message.contains("b.toml:4: not TOML"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
}

#[test]
fn a_key_in_two_files_is_a_mistake_that_names_both_places() {
    let first = "version = 1\nforward = []\n[[listener]]\nbind = \"127.0.0.1:1\"\n[traces]\nendpoint = \"http://a\"\n";
    for (second, expected) in [
        (
            "version = 1\n\nforward = []\n",
            "b.toml:3: forward is set in two files: expected one place, here or a.toml:2",
        ),
        (
            "version = 1\n[traces]\n\nendpoint = \"http://hunter2@b\"\n",
            "b.toml:4: traces.endpoint is set in two files: expected one place, here or a.toml:6",
        ),
        ("version = 1\ntraces = 1\n", "b.toml:2: traces is set in two files: expected one place, here or a.toml:5"),
        (
            "version = 1\n[listener]\nbind = \"127.0.0.1:2\"\n",
            "b.toml:2: listener is set in two files: expected one place, here or a.toml:3",
        ),
        ("\nversion = 2\n", "b.toml:2: version = 2: expected the same version as at a.toml:1"),
        ("[limits]\n", "b.toml: version is missing: expected version = 1"),
    ] {
        let message = Fragments::new(&[("a.toml", first), ("b.toml", second)]).load().unwrap_err();
        assert!(message.starts_with(expected) && message.lines().count() == 1, "{second}: {message}");
    }
}

#[test]
fn empty_duplicate_and_missing_paths_are_errors() {
    let fragments = Fragments::new(&[]);
    let message = fragments.load().unwrap_err();
    assert!(message.ends_with(": expected a directory with *.toml files"), "{message}");
    fragments.write("a.toml", &with_listener(""));
    let file = fragments.0.join("a.toml");
    let message = load([&*fragments.0, &*file, Path::new("/nonexistent.toml")], &Flags::default()).unwrap_err();
    let message = fragments.shorten(&message.to_string());
    let lines: Vec<_> = message.lines().collect();
    assert_eq!(lines[0], "a.toml: expected this file only once", "{message}");
    assert!(lines[1].starts_with("/nonexistent.toml: expected a readable file") && lines.len() == 2, "{message}");
}

#[test]
fn variables_are_replaced_in_values_at_any_depth() {
    let (name, value) = VARIABLE;
    let text = format!(
        "forward = [\"socks5://u:${{{name}}}@192.0.2.1:1\"]\n[traces]\nendpoint = \"http://c/${{{name}}}\"\n[admin]\nbind = \"unix:/run/$${{x}}\""
    );
    let config = valid_config(&with_listener(&text));
    let traces = config.traces.as_ref().unwrap();
    assert_eq!(traces.collector.path, format!("/{value}"));
    assert_eq!(config.admin.bind, AdminBind::Unix("/run/${x}".into()));
    let hop = &default_hops(&config)[0];
    assert!(matches!(&hop.kind, HopKind::Socks5(Some(_))), "{hop}");

    let message = from_text(&with_listener("\"${CARGO_PKG_NAME}\" = 1")).unwrap_err().to_string();
    assert!(message.contains(":2: ${CARGO_PKG_NAME} is not a key"), "{message}");
}

#[test]
fn unset_variable_is_the_only_error_of_its_line() {
    let message = from_text("version = 1\n[[listener]]\nbind = \"${EKIDEN_NO_SUCH}\"\nkind = \"sox\"\n").unwrap_err();
    let lines: Vec<String> = message.0.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines[0],
        "configuration:3: listener[1].bind: expected the environment variable EKIDEN_NO_SUCH to be set"
    );
    assert!(lines.len() == 2 && lines[1].starts_with("configuration:4: listener[1].kind"), "{lines:?}");
}

/// The value of a variable is as secret as the same text in the file.
#[test]
fn values_of_variables_in_urls_and_key_files_are_not_shown() {
    let (name, value) = VARIABLE;
    for line in [
        format!("forward = [\"socks5://u:${{{name}}}@192.0.2.1:x\"]"),
        format!("forward = [\"socks5://u:${{{name}}}\"]"),
        format!("forward = [\"http://u:%ff${{{name}}}@h:1\"]"),
        format!("private_key = \"aaaaaaaa-${{{name}}}\""),
        format!("traces.endpoint = \"http://u:${{{name}}}@h/x\""),
        format!("fleet.etcd = [\"http://u:${{{name}}}@h:1\"]"),
    ] {
        let message = from_text(&with_listener(&line)).unwrap_err().to_string();
        assert!(message.contains(":2: ") && !message.contains(value), "{line}: {message}");
    }
}

/// A file without a password may be readable by others.
#[test]
fn warning_names_only_the_file_with_the_password() {
    let fragments = Fragments::new(&[("a.toml", &with_listener(""))]);
    for (password, warnings) in [("hunter2", 1), ("${CARGO_PKG_NAME}", 0)] {
        fragments.write("b.toml", &format!("version = 1\nforward = [\"socks5://u:{password}@192.0.2.1:1\"]\n"));
        for file in ["a.toml", "b.toml"] {
            fs::set_permissions(fragments.0.join(file), fs::Permissions::from_mode(0o644)).unwrap();
        }
        let config = fragments.load().unwrap();
        assert_eq!(config.warnings.len(), warnings, "{:?}", config.warnings);
        assert!(config.warnings.iter().all(|warning| warning.source.ends_with("b.toml") && warning.line == Some(2)));
    }
}
