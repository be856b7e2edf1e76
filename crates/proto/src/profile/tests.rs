use super::*;

#[test]
fn built_ins_exist_and_are_ordered() {
    for name in BUILT_IN {
        let profile = Profile::built_in(name).unwrap();
        let positions: Vec<_> = profile.settings().iter().map(Setting::position).collect();
        assert!(positions.is_sorted(), "{name}: {positions:?}");
    }
    assert_eq!(Profile::built_in("none"), None);
}

#[test]
fn setting_a_key_again_replaces_it() {
    let mut profile = Profile::built_in("longhaul").unwrap();
    let count = profile.settings().len();
    profile.set(Setting::read("congestion", "cubic").unwrap());
    assert_eq!(profile.settings().len(), count);
    assert!(profile.settings().contains(&Setting::Congestion(Algorithm("cubic".into()))));
}

#[test]
fn compound_tcp_is_asked_only_where_it_is_in_use() {
    let profile = |settings: &[(&str, &str)]| {
        let mut profile = Profile::named("test");
        settings.iter().for_each(|(key, value)| profile.set(Setting::read(key, value).unwrap()));
        profile.compound_tcp()
    };
    let both = CompoundTcp { gamma: 12, auto_gamma: true };
    assert_eq!(profile(&[("congestion", "ctcp"), ("ctcp_gamma", "12"), ("ctcp_auto_gamma", "true")]), Some(both));
    assert_eq!(profile(&[("congestion", "cubic"), ("ctcp_gamma", "12")]), None);
    assert_eq!(profile(&[("congestion", "ctcp")]), None);
}

#[test]
fn tuning_begins_with_what_the_profile_leaves_open() {
    let opening = |settings: &[(&str, &str)]| {
        let mut profile = Profile::named("test");
        settings.iter().for_each(|(key, value)| profile.set(Setting::read(key, value).unwrap()));
        profile.initial_settings().map(|setting| setting.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(opening(&[("tune", "false")]), ["tune = false"]);
    assert_eq!(
        opening(&[("tune", "true"), ("rto_min", "90ms")]),
        ["rto_min = 90ms", "tune = true", "notsent_lowat = 1MiB", "delack_max = 20ms"]
    );
}

#[test]
fn wrong_values_say_what_was_expected() {
    assert_eq!(Setting::read("rto_min", "5"), Err(Some("a time from \"8ms\" to \"200ms\"".to_owned())));
    assert_eq!(
        Setting::read("congestion", "a name too long for it"),
        Err(Some("a congestion control like \"bbr\"".to_owned()))
    );
    assert_eq!(Setting::read("nagle", "true"), Err(None));
}

/// Values that a kernel masks, clamps or refuses were accepted, and `dscp = 99` was reported as applied.
#[test]
fn each_setting_has_its_bounds() {
    let all: &[(&str, &[&str], &[&str])] = &[
        ("mptcp", &["true", "false"], &["yes", "1"]),
        (
            "bind",
            &["192.0.2.1", "2001:db8::1", "127.0.0.1"],
            &["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "host"],
        ),
        ("fwmark", &["0", "4294967295"], &["-1", "4294967296", "0x10"]),
        ("dscp", &["0", "63"], &["64", "99", "-1"]),
        ("congestion", &["bbr", "a-name_of15char"], &["", "a_name_of16chars", "b r"]),
        ("ctcp_gamma", &["0", "1", "65535"], &["65536", "4294967295"]),
        ("ctcp_auto_gamma", &["true"], &["5"]),
        ("rcvbuf", &["4KiB", "1023MiB"], &["4095B", "1GiB", "0B"]),
        ("sndbuf", &["4KiB", "1023MiB"], &["4095B", "1GiB", "0B"]),
        ("window_clamp", &["4KiB", "1GiB"], &["1B", "4095B", "2GiB"]),
        ("notsent_lowat", &["0B", "1B", "1GiB"], &["2GiB"]),
        ("mss", &["88", "32767"], &["0", "20", "87", "32768", "65535"]),
        ("nodelay", &["false"], &["0"]),
        ("quickack", &["true"], &["on"]),
        ("fast_open", &["true"], &["on"]),
        ("keepalive", &["0s", "1s", "32767s"], &["1500ms", "1ms", "32768s", "10h"]),
        ("keepalive_interval", &["1s", "32767s"], &["0s", "1ms", "1.5s", "32768s"]),
        ("keepalive_count", &["1", "127"], &["0", "128", "255"]),
        ("user_timeout", &["0s", "1ms", "596h"], &["1us", "1.5ms", "597h"]),
        ("rto_min", &["8ms", "200ms"], &["1ms", "7999us", "201ms", "0s"]),
        ("rto_max", &["1s", "2min"], &["999ms", "121s", "0s", "1.0005s"]),
        ("delack_max", &["8ms", "200ms"], &["1ms", "201ms"]),
        ("thin_linear_timeouts", &["true"], &["1"]),
        ("pacing_rate", &["8kbit/s", "400Gbit/s"], &["7kbit/s", "401Gbit/s"]),
        ("tx_delay", &["0s", "1us", "10s"], &["11s"]),
        ("tune", &["false"], &["auto"]),
    ];
    assert_eq!(all.iter().map(|(key, ..)| *key).collect::<Vec<_>>(), Setting::KEYS);
    let mut wrong = Vec::new();
    for (key, good, bad) in all {
        wrong.extend(
            good.iter()
                .filter(|text| Setting::read(key, text).is_err())
                .map(|text| format!("{key} = {text} is refused")),
        );
        wrong.extend(
            bad.iter()
                .filter(|text| Setting::read(key, text).is_ok())
                .map(|text| format!("{key} = {text} is accepted")),
        );
    }
    assert_eq!(wrong, Vec::<String>::new());
}
