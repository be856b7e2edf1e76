//! Keys as text: a key has exactly one text, a key file has one private key, and debug output does not show it.
#![no_main]

use ekiden_proto::key::{PrivateKey, PublicKey};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(key) = text.parse::<PublicKey>() {
        assert_eq!(key.to_string(), text);
    }
    if let Ok(key) = PrivateKey::from_file(text) {
        assert!(text.contains(key.to_base64().as_str()));
        assert_eq!(format!("{key:?}"), "PrivateKey(...)");
        let again = PrivateKey::from_file(&key.to_base64()).expect("the key alone");
        assert_eq!(again.as_bytes(), key.as_bytes());
    }
});
