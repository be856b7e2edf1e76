//! `[profile.NAME]`: bounds of settings.

use super::*;

/// A bad `base` was the only mistake told: the other values were accepted, masked or clamped by the kernel.
#[test]
fn settings_out_of_bounds_are_all_told_beside_a_bad_base() {
    let text =
        "[profile.x]\nbase = \"longhau\"\ndscp = 99\nrto_min = \"1ms\"\nmss = 20\nkeepalive_count = 0\nrcvbuf = \"1B\"";
    let seen = mistakes(&with_listener(text));
    let told: Vec<_> = seen.iter().map(|m| (m.line, m.key.as_str(), m.expected.as_str())).collect();
    assert_eq!(
        told,
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
