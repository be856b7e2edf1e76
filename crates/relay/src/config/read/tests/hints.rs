//! The unit, name or scheme that a mistake suggests.

use super::*;

#[test]
fn the_unit_that_was_meant_is_told() {
    for (text, says) in [
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
        let seen = mistakes(&with_listener(text));
        let [mistake] = &seen[..] else { panic!("{text}: {seen:#?}") };
        assert!(mistake.expected.ends_with(says), "{text}: {mistake}");
    }
    for text in ["[timeouts]\nidle = \"5 parsecs\"", "[timeouts]\nidle = \"m\"", "[timeouts]\nidle = \"30\""] {
        let seen = mistakes(&with_listener(text));
        assert!(!seen[0].expected.contains("write"), "{text}: {seen:#?}");
    }
}
