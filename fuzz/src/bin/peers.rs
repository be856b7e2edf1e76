//! Peers files: no panic, and no key in error messages.
#![no_main]

use ekiden_relay::config::Peers;

/// A part of a key that messages do not contain by chance.
const SECRET: &str = "kB3qX9vT";

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // A name is not a secret, even if it contains this text.
    let named = |line: &str| line.split_whitespace().skip(1).any(|word| word.contains("+IK08"));
    if text.lines().any(named) {
        return;
    }
    let relays = ["osaka".to_owned(), "kyoto".to_owned()];
    match Peers::from_text(&text.replace("+IK08", SECRET), &[], &relays) {
        Ok(peers) => {
            for peer in peers.0.values() {
                assert!(peer.next_hops.iter().flatten().all(|name| relays.iter().any(|relay| **relay == **name)));
            }
        }
        Err(mistakes) => {
            for (line, message) in mistakes {
                assert!(line >= 1 && line <= text.lines().count() && !message.contains(SECRET), "{line}: {message}");
            }
        }
    }
});
