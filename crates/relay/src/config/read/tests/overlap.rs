//! Listeners, and `[admin]`, whose addresses the kernel refuses beside each other.

use super::*;

/// bind(2) fails with EADDRINUSE for the second one, and "another program" was blamed at the start.
#[test]
fn listeners_that_overlap_are_told() {
    for (one, other, overlap) in [
        ("127.0.0.1:1080", "0.0.0.0:1080", true),
        ("0.0.0.0:1080", "127.0.0.1:1080", true),
        ("[::]:1080", "127.0.0.1:1080", true),
        ("[::]:1080", "0.0.0.0:1080", true),
        ("[::]:1080", "[::1]:1080", true),
        ("[::ffff:127.0.0.1]:1080", "127.0.0.1:1080", true),
        ("[::1]:1080", "0.0.0.0:1080", false),
        ("[::1]:1080", "127.0.0.1:1080", false),
        ("127.0.0.2:1080", "127.0.0.1:1080", false),
        ("127.0.0.1:1080", "0.0.0.0:1081", false),
        ("127.0.0.1:0", "0.0.0.0:0", false),
    ] {
        let text = format!(
            "version = 1\n[[listener]]\nbind = \"{one}\"\nallow_open = true\n[[listener]]\nbind = \"{other}\"\nallow_open = true\n"
        );
        let told = from_text(&text).err().map(|mistakes| mistakes.to_string());
        let says = format!(
            "configuration:6: listener[2].bind = \"{other}\": expected an address that no other listener has: \
             listener[1] has {one}"
        );
        assert_eq!(told, overlap.then_some(says), "{one} {other}");
        let admin =
            format!("version = 1\n[[listener]]\nbind = \"{one}\"\nallow_open = true\n[admin]\nbind = \"{other}\"\n");
        let told = from_text(&admin).err().map(|mistakes| mistakes.to_string()).unwrap_or_default();
        assert_eq!(told.contains("an address that no listener has"), overlap, "{one} {other}: {told}");
    }
}
