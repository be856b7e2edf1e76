//! `[[path]]` and `[[route]]`.

use super::*;

const RELAYS: &str = r#"
[[relay]]
name = "osaka"
url = "http://osaka.example:1"
[[relay]]
name = "kyoto"
url = "http://kyoto.example:1"
"#;

fn with_relays(text: &str) -> String {
    with_listener(&format!("{RELAYS}{text}"))
}

/// Each route as `PATTERNS -> PATHS`, and each path as its name and its hops.
fn describe_routes(config: &Config) -> Vec<String> {
    let path = |path: &Arc<crate::config::Path>| {
        let hops: Vec<_> = path.hops.iter().map(ToString::to_string).collect();
        format!("{}({})", path.name, hops.join(" "))
    };
    let route = |route: &crate::config::Route| {
        let to: Vec<_> = route.to.iter().map(ToString::to_string).collect();
        format!("{} -> {}", to.join(" "), route.paths.iter().map(path).collect::<Vec<_>>().join(" "))
    };
    config.routes.iter().map(route).collect()
}

#[test]
fn last_route_matches_all_other_targets() {
    assert_eq!(describe_routes(&valid_config(&with_listener(""))), [" -> direct()"]);
    let forward = "forward = [\"http://a:1\", \"socks5://b:2\"]";
    let name = "http://a:1,socks5://b:2";
    assert_eq!(
        describe_routes(&valid_config(&with_listener(forward))),
        [format!(" -> {name}(http://a:1 socks5://b:2)")]
    );
}

#[test]
fn routes_refer_to_paths_by_name() {
    let text = r#"
[[path]]
name = "long"
relays = ["osaka", "kyoto"]
[[path]]
name = "short"
relays = "kyoto"
[[path]]
name = "unused"
relays = ["osaka"]
[[route]]
to = ["*.example.jp", "203.0.113.0/24", "*:25"]
path = ["long", "short", "direct"]
[[route]]
to = ["example.com"]
path = "direct"
[[route]]
path = ["short"]
"#;
    let config = valid_config(&with_relays(text));
    let expected = [
        "*.example.jp 203.0.113.0/24 *:25 -> long(osaka kyoto) short(kyoto) direct()",
        "example.com -> direct()",
        " -> short(kyoto)",
        " -> direct()",
    ];
    assert_eq!(describe_routes(&config), expected);
    let paths: Vec<_> = config.paths().into_iter().map(|path| &*path.name).collect();
    assert_eq!(paths, ["long", "short", "direct"]);
    assert_eq!(config.relays.len(), 2);
}

#[test]
fn invalid_paths_and_routes_are_reported() {
    let path = "[[path]]\nname = \"p\"\nrelays = [\"osaka\"]\n";
    for (text, key, expected) in [
        ("[[path]]\nrelays = [\"osaka\"]", "path[1].name", "a name of 1 to 64"),
        ("[[path]]\nname = \"direct\"\nrelays = [\"osaka\"]", "path[1].name", "another name"),
        ("PATH[[path]]\nname = \"p\"\nrelays = [\"kyoto\"]", "path[2].name", "that no other table"),
        ("[[path]]\nname = \"osaka\"\nrelays = [\"kyoto\"]", "path[1].name", "a relay has this name"),
        ("[[path]]\nname = \"osaka\"\nrelays = [\"osaka\", \"kyoto\"]", "path[1].name", "a relay has this name"),
        ("[[path]]\nname = \"p\"", "path[1].relays", "at least one"),
        ("[[path]]\nname = \"p\"\nrelays = []", "path[1].relays", "at least one"),
        ("[[path]]\nname = \"p\"\nrelays = [\"osaka\", \"kioto\"]", "path[1].relays[2]", "\"kyoto\", perhaps"),
        ("[[path]]\nname = \"p\"\nrelays = [\"nagoya\"]", "path[1].relays[1]", "a relay, one of osaka, kyoto"),
        ("[[path]]\nname = \"p\"\nrelays = [\"direct\"]", "path[1].relays[1]", "a relay, one of osaka, kyoto"),
        ("[[path]]\nname = \"p\"\nrelays = [\"osaka\", \"osaka\"]", "path[1].relays[2]", "each relay once"),
        ("[[path]]\nname = \"p\"\nrelays = [\"osaka\"]\nto = []", "path[1].to", "one of name, relays"),
        ("PATH[[route]]\nto = [\"*\"]", "route[1].path", "at least one"),
        ("PATH[[route]]\npath = []", "route[1].path", "at least one"),
        ("PATH[[route]]\npath = [\"q\"]", "route[1].path[1]", "a path or a relay, one of direct, p, osaka, kyoto"),
        ("PATH[[route]]\npath = [\"osak\"]", "route[1].path[1]", "a path or a relay: \"osaka\", perhaps"),
        ("PATH[[route]]\npath = \"dirct\"", "route[1].path", "\"direct\", perhaps"),
        ("PATH[[route]]\npath = [\"p\", \"p\"]", "route[1].path[2]", "each path once"),
        ("PATH[[route]]\nto = []\npath = [\"p\"]", "route[1].to", "at least one"),
        ("PATH[[route]]\nto = [\"a b\"]\npath = [\"p\"]", "route[1].to[1]", "targets like"),
        ("PATH[[route]]\npath = [\"p\"]\n[[route]]\npath = [\"direct\"]", "route[2]", "route[1], which matches all"),
        (
            "PATH[[route]]\nto = [\"a\", \"*\"]\npath = [\"p\"]\n[[route]]\nto = [\"b\"]\npath = [\"direct\"]",
            "route[2]",
            "route[1], which matches all",
        ),
    ] {
        let text = with_relays(&text.replace("PATH", path));
        let seen = errors_of(&text);
        let [mistake] = &seen[..] else { panic!("{text}: {seen:#?}") };
        assert!(mistake.key == key && mistake.expected.contains(expected), "{text}: {mistake}");
    }
}

/// A section relay named `name`.
fn section_relay(name: &str) -> String {
    format!("[[relay]]\nname = \"{name}\"\naddress = \"{name}.example:7000\"\nkey = \"{}\"\n", random_public_key())
}

#[test]
fn auto_route_has_the_paths_of_its_default() {
    let long = "[[path]]\nname = \"long\"\nrelays = [\"osaka\", \"kyoto\"]\n";
    for (more, route, expected) in [
        ("", "", "nara(nara) direct()"),
        (long, "", "long(osaka kyoto) direct()"),
        (long, "default = \"nara\"\n", "nara(nara) direct()"),
        ("", "default = \"osaka\"\n", "osaka(osaka) direct()"),
        (long, "default = \"direct\"\n", "direct()"),
    ] {
        let text = format!("{}{more}[[route]]\npath = \"auto\"\n{route}", section_relay("nara"));
        let config = valid_config(&with_relays(&text));
        assert_eq!(describe_routes(&config)[0], format!(" -> {expected}"), "{text}");
        assert!(config.routes[0].auto && !config.routes[1].auto && config.has_auto_route());
        let may_dial = |hop: &&Arc<crate::config::Hop>| config.may_dial(hop);
        assert_eq!(config.relays.iter().filter(may_dial).count(), 1, "only the relay of the auto route may be dialled");
    }
}

#[test]
fn invalid_auto_routes_are_reported() {
    let path = "[[path]]\nname = \"p\"\nrelays = [\"nara\"]\n";
    let nara = section_relay("nara");
    for (text, key, expected) in [
        ("[[route]]\npath = \"auto\"", "route[1].path", "no [[relay]] has address and key"),
        ("NARA[[route]]\npath = [\"auto\"]", "route[1].path[1]", "a path or a relay, one of direct, p, "),
        (
            "NARA[[route]]\npath = \"auto\"\ndefault = \"q\"",
            "route[1].default",
            "a path or a relay, one of direct, p, ",
        ),
        ("NARA[[route]]\npath = \"auto\"\ndefault = [\"p\"]", "route[1].default", "a name of 1 to 64"),
        ("NARA[[route]]\npath = \"p\"\ndefault = \"p\"", "route[1].default", "this key only with path = \"auto\""),
        ("NARA[[path]]\nname = \"auto\"\nrelays = [\"nara\"]", "path[2].name", "that the relay chooses"),
    ] {
        let text = with_relays(&text.replace("NARA", &format!("{nara}{path}")));
        let seen = errors_of(&text);
        let [mistake] = &seen[..] else { panic!("{text}: {seen:#?}") };
        assert!(mistake.key == key && mistake.expected.contains(expected), "{text}: {mistake}");
    }
}

#[test]
fn port_and_network_patterns_are_not_catch_all() {
    let route = "[[route]]\nto = [\"*:25\", \"0.0.0.0/0\"]\npath = \"direct\"\n";
    assert_eq!(valid_config(&with_relays(&route.repeat(2))).routes.len(), 3);
}

#[test]
fn a_path_may_have_the_name_of_its_only_relay() {
    let text = "[[path]]\nname = \"osaka\"\nrelays = [\"osaka\"]\n[[route]]\npath = \"osaka\"\n";
    assert_eq!(describe_routes(&valid_config(&with_relays(text))), [" -> osaka(osaka)", " -> direct()"]);
}

/// The names of an invalid relay and of its path stay defined, so references to them are not reported.
#[test]
fn invalid_relay_causes_no_follow_up_errors() {
    let text = r#"
[[relay]]
name = "a"
url = "nonsense"
[[path]]
name = "p"
relays = ["a"]
[[route]]
path = "p"
"#;
    let seen = errors_of(&with_listener(text));
    assert_eq!(seen.iter().map(|m| m.key.as_str()).collect::<Vec<_>>(), ["relay[1].url"], "{seen:#?}");
}

#[test]
fn route_profile_overrides_the_target_profile() {
    let text = "target_profile = \"longhaul\"\n[[route]]\nto = [\"*:80\"]\npath = \"direct\"\nprofile = \"lossy\"\n\
        [[route]]\nto = [\"*:81\"]\npath = \"direct\"\n";
    let config = valid_config(&with_listener(text));
    let names: Vec<_> = config.routes.iter().map(|route| route.profile.name.as_str()).collect();
    assert_eq!(names, ["lossy", "longhaul", "longhaul"]);
    let text = "[[path]]\nname = \"p\"\nrelays = [\"osaka\"]\n[[route]]\npath = \"p\"\nprofile = \"lossy\"\n";
    let [mistake] = &errors_of(&with_relays(text))[..] else { panic!("the configuration was accepted") };
    assert_eq!(mistake.key, "route[1].profile");
    assert!(mistake.expected.contains("no path of this route is direct"), "{mistake}");
}

/// Regression: a route could use a relay only by a configured path, and no error stated this.
#[test]
fn relay_name_is_the_path_through_that_relay() {
    let text = "[[route]]\nto = [\"a.example\"]\npath = [\"osaka\", \"direct\"]\n[[route]]\nto = [\"b.example\"]\npath = \"kyoto\"";
    let seen = describe_routes(&valid_config(&with_relays(text)));
    assert_eq!(seen[..2], ["a.example -> osaka(osaka) direct()", "b.example -> kyoto(kyoto)"]);
    let seen = errors_of(&with_relays("[[route]]\npath = [\"osak\"]"));
    let [mistake] = &seen[..] else { panic!("{seen:#?}") };
    assert_eq!(
        (mistake.key.as_str(), mistake.expected.as_str()),
        ("route[1].path[1]", "a path or a relay: \"osaka\", perhaps")
    );
}

#[test]
fn only_direct_routes_send_proxy_headers() {
    let relay = format!("[[relay]]\nname = \"osaka\"\naddress = \"r.example:1\"\nkey = \"{}\"\n", PublicKey([1; 32]));
    let text = |route: &str| with_listener(&format!("{relay}[[route]]\n{route}\n"));
    let config = valid_config(&text("path = [\"direct\"]\nsend_proxy = \"v2\""));
    assert_eq!(config.routes[0].send_proxy, Some(ProxyVersion::V2));
    assert_eq!(config.routes.last().unwrap().send_proxy, None);
    for (route, expected) in [
        ("path = [\"direct\"]\nsend_proxy = \"v3\"", "route[1].send_proxy = \"v3\": expected \"v1\" or \"v2\""),
        (
            "path = [\"direct\", \"osaka\"]\nsend_proxy = \"v1\"",
            "route[1].send_proxy = \"v1\": expected this key only with path",
        ),
        ("path = \"auto\"\nsend_proxy = \"v1\"", "route[1].send_proxy = \"v1\": expected this key only with path"),
    ] {
        let shown = from_text(&text(route)).unwrap_err().to_string();
        assert!(shown.contains(expected), "{route}: {shown}");
    }
}

#[test]
fn target_lists_are_read_from_files() {
    let file = std::env::temp_dir().join(format!("ekiden-targets-{}", std::process::id()));
    let path = file.display().to_string();
    let text = |keys: &str| with_listener(&format!("[[route]]\npath = \"direct\"\n{keys}\n"));
    let missing = errors_of(&text(&format!("to_files = [{path:?}]")));
    assert!(missing[0].key == "route[1].to_files" && missing[0].expected.contains("a readable file"), "{missing:?}");

    std::fs::write(&file, "listed.example\n").unwrap();
    let config = valid_config(&text(&format!("to_files = [{path:?}]\nresolve = \"here\"")));
    let route = &config.routes[0];
    let host = |name: &str| ekiden_proto::addr::Host::parse(name).unwrap();
    assert!(route.matches(&host("listed.example"), None, 1) && !route.matches(&host("other.example"), None, 1));
    assert_eq!((route.resolve, config.routes[1].resolve), (Resolve::Here, Resolve::AsRequested));

    std::fs::write(&file, "").unwrap();
    assert!(errors_of(&text(&format!("to_files = [{path:?}]")))[0].expected.contains("this file is empty"));
    std::fs::write(&file, "listed.example\n\na b\n").unwrap();
    let seen = errors_of(&text(&format!("to_files = [{path:?}]")));
    std::fs::remove_file(&file).unwrap();
    assert_eq!((seen[0].source.as_str(), seen[0].line), (path.as_str(), Some(3)), "{seen:?}");
    for (keys, key, expected) in [
        ("to_files = []", "route[1].to_files", "at least one"),
        ("resolve = \"there\"", "route[1].resolve", "\"here\" or \"exit\""),
    ] {
        let seen = errors_of(&text(keys));
        assert!(seen[0].key == key && seen[0].expected.contains(expected), "{keys}: {seen:?}");
    }
}
