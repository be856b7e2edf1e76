//! htpasswd files: no panic, no hash in debug output, and only valid line numbers in errors.
#![no_main]

use ekiden_relay::config::users::Users;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Users::from_text(text, [7; 32]) {
        Ok(users) => assert!(!format!("{users:?}").contains("$2")),
        Err(mistakes) => assert!(mistakes.iter().all(|(line, _)| *line >= 1 && *line <= text.lines().count())),
    }
});
