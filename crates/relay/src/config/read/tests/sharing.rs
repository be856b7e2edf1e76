//! Interfaces whose rate is shared, weights, limits, and the bounds of `[profile.NAME]`.

use super::*;

#[test]
fn interfaces_and_weights_are_read() {
    let hash = bcrypt::hash("hunter2", 4).unwrap();
    let users = Scratch::new("users", &format!("alice:{hash}\nb@b o:{hash}\n"));
    let config = valid_config(&format!(
        "version = 1\n[[interface]]\nname = \"wan0\"\nrate = \"100Mbit/s\"\n[[interface]]\nname = \"lo\"\nrate = \"64kbit/s\"\n\
         [user.alice]\nweight = 1000\n[user.\"b@b o\"]\n\
         [[listener]]\nbind = \"127.0.0.1:1080\"\nweight = 3\nusers = \"{}\"\n",
        users.path()
    ));
    let shown: Vec<_> =
        config.interfaces.iter().map(|interface| (interface.name.as_str(), interface.rate.to_string())).collect();
    assert_eq!(shown, [("wan0", "100Mbit/s".to_owned()), ("lo", "64kbit/s".to_owned())]);
    assert_eq!(config.listeners[0].weight, 3);
    let weights = [Some("alice"), Some("b@b o"), Some("carol"), None].map(|user| config.users.weight_of(user));
    assert_eq!(weights, [1000, 1, 1, 1]);
    assert_eq!(valid_config(&with_listener("")).listeners[0].weight, 1);
    let by_url = load(None, &listen(&["auto://:1080?weight=7"])).unwrap();
    assert_eq!(by_url.listeners[0].weight, 7);
}

#[test]
fn absurd_rates_names_and_weights_are_refused() {
    for (text, key, expected) in [
        ("[[interface]]\nrate = \"1Mbit/s\"", "interface[1].name", "network interface"),
        ("[[interface]]\nname = \"wan0\"", "interface[1].rate", "100Mbit/s"),
        ("[[interface]]\nname = \"a b\"\nrate = \"1Mbit/s\"", "interface[1].name", "network interface"),
        ("[[interface]]\nname = \"an-interface-of-16\"\nrate = \"1Mbit/s\"", "interface[1].name", "network interface"),
        ("[[interface]]\nname = \"wan0\"\nrate = \"1kbit/s\"", "interface[1].rate", "64kbit/s"),
        ("[[interface]]\nname = \"wan0\"\nrate = \"0bit/s\"", "interface[1].rate", "64kbit/s"),
        ("[[interface]]\nname = \"wan0\"\nrate = \"401Gbit/s\"", "interface[1].rate", "400Gbit/s"),
        ("[[interface]]\nname = \"wan0\"\nrate = \"99999999999Gbit/s\"", "interface[1].rate", "400Gbit/s"),
        ("[[interface]]\nname = \"wan0\"\nrate = 100", "interface[1].rate", "100Mbit/s"),
        ("[[interface]]\nname = \"wan0\"\nrate = \"1Mbit/s\"\nspeed = 1", "interface[1].speed", "rate"),
        ("[interface]\nname = \"wan0\"", "interface", "[[interface]]"),
        ("[user.mallory]\nweight = 2", "user.mallory", "users"),
        ("[user]\nalice = 2", "user.alice", "[user.NAME]"),
    ] {
        let found = errors_of(&with_listener(text));
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert_eq!(found[0].key, key, "{text}");
        assert!(found[0].expected.contains(expected), "{text}: {}", found[0].expected);
    }
    let twice = "[[interface]]\nname = \"wan0\"\nrate = \"1Mbit/s\"\n".repeat(2);
    assert!(errors_of(&with_listener(&twice))[0].expected.contains("once"));
    for weight in ["0", "1001", "-1", "1.5", "\"2\"", "true"] {
        let text = format!("version = 1\n[[listener]]\nbind = \"127.0.0.1:1080\"\nweight = {weight}\n");
        let found = errors_of(&text);
        assert_eq!((found.len(), found[0].key.as_str()), (1, "listener[1].weight"), "{weight}: {found:?}");
        assert!(found[0].expected.contains("1 to 1000"), "{weight}");
    }
}

#[test]
fn limits_of_users_and_listeners_are_read() {
    let hash = bcrypt::hash("hunter2", 4).unwrap();
    let users = Scratch::new("users", &format!("alice:{hash}\nbob:{hash}\n"));
    let config = valid_config(&format!(
        "version = 1\n[limits]\nusage_file = \"/nowhere/usage.db\"\n\
         [user.alice]\nsessions = 2\nrate = \"10Mbit/s\"\nquota = \"10GiB/day\"\n[user.\"*\"]\nquota = \"1GB/month\"\n\
         [[listener]]\nbind = \"127.0.0.1:1080\"\nrate = \"100Mbit/s\"\nusers = \"{}\"\n",
        users.path()
    ));
    let shown = |limits: AccountLimits| {
        (limits.sessions, limits.rate.map(|rate| rate.to_string()), limits.quota.map(|quota| quota.to_string()))
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(shown(config.users.limits_of("alice")), (Some(2), text("10Mbit/s"), text("10GiB/day")));
    assert_eq!(shown(config.users.limits_of("bob")), (None, None, text("1000000000B/month")));
    assert_eq!(config.users.limited_names().collect::<Vec<_>>(), ["alice"]);
    assert_eq!(shown(config.listeners[0].limits), (None, text("100Mbit/s"), None));
    let by_url = load(None, &listen(&["auto://:1080?sessions=7&rate=1Mbit/s"])).unwrap();
    assert_eq!(shown(by_url.listeners[0].limits), (Some(7), text("1Mbit/s"), None));
}

#[test]
fn invalid_limits_are_refused() {
    let tproxy = "[[listener]]\nkind = \"tproxy\"\nbind = \"[::]:7001\"\ninterfaces = [\"lan0\"]\n";
    let usage = "[limits]\nusage_file = \"/nowhere/usage.db\"\n";
    for (text, key, expected) in [
        ("sessions = 0", "listener[1].sessions", "1 or more"),
        ("rate = \"1kbit/s\"", "listener[1].rate", "8kbit/s"),
        ("rate = \"10Mbps\"", "listener[1].rate", "\"10Mbit/s\""),
        ("quota = \"10GiB\"", "listener[1].quota", "10GiB/day"),
        ("quota = \"10G/d\"", "listener[1].quota", "\"10GiB/day\""),
        ("quota = \"10GiB/day\"", "limits.usage_file", "over restarts"),
        (&format!("{tproxy}sessions = 1"), "listener[2].sessions", "bypass the relay"),
        (&format!("{usage}{tproxy}quota = \"1GiB/day\""), "listener[2].quota", "bypass the relay"),
        ("[user.\"*\"]\nsessions = 1", "user.*", "users file"),
    ] {
        let found = errors_of(&format!("version = 1\n[[listener]]\nbind = \"127.0.0.1:1080\"\n{text}\n"));
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert_eq!(found[0].key, key, "{text}");
        assert!(found[0].expected.contains(expected), "{text}: {}", found[0].expected);
    }
}

/// The users of an invalid file are unknown, so `alice` must not be reported as missing.
#[test]
fn invalid_users_file_is_one_error() {
    let users = Scratch::new("users", "alice\n");
    let text = format!(
        "version = 1\n[user.alice]\nweight = 2\n[[listener]]\nbind = \"127.0.0.1:1080\"\nusers = \"{}\"\n",
        users.path()
    );
    let found = errors_of(&text);
    assert_eq!(found.len(), 1, "{found:?}");
}

/// Regression: an invalid `base` was the only reported error, and the kernel accepted, masked or clamped the other
/// values.
#[test]
fn out_of_range_settings_are_reported_beside_a_bad_base() {
    let text =
        "[profile.x]\nbase = \"longhau\"\ndscp = 99\nrto_min = \"1ms\"\nmss = 20\nkeepalive_count = 0\nrcvbuf = \"1B\"";
    let seen = errors_of(&with_listener(text));
    let reported: Vec<_> = seen.iter().map(|m| (m.line, m.key.as_str(), m.expected.as_str())).collect();
    assert_eq!(
        reported,
        [
            (Some(3), "profile.x.base", "a profile: \"longhaul\", perhaps"),
            (Some(4), "profile.x.dscp", "a number from 0 to 63"),
            (Some(5), "profile.x.rto_min", "a time from \"8ms\" to \"200ms\""),
            (Some(6), "profile.x.mss", "a number from 88 to 32767"),
            (Some(7), "profile.x.keepalive_count", "a number from 1 to 127"),
            (Some(8), "profile.x.rcvbuf", "a size from \"4KiB\" to \"1023MiB\""),
        ]
    );
}
