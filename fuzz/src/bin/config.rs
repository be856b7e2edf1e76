//! Configuration files and listener URLs: no panic, and no secret in error messages and debug output.
#![no_main]

use ekiden_relay::config::read::{Flags, from_text, load};

/// A password that messages do not contain by chance, and that is not a valid variable name.
const SECRET: &str = "kB3-X9vT";

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // The values of these keys are paths of files to read, and the fuzzer could find /dev/zero.
    if ["users", "peers", "file"].iter().any(|key| text.contains(key)) {
        return;
    }
    let output = match from_text(&text.replace("PASSWORD", SECRET)) {
        Ok(config) => format!("{config:?}"),
        Err(mistakes) => mistakes.to_string(),
    };
    // Only hop URLs contain passwords. At any other place the text is not a secret.
    if text.lines().all(|line| !line.contains("PASSWORD") || line.starts_with("forward = [\"socks5://me:PASSWORD@")) {
        assert!(!output.contains(SECRET), "{output}");
    }
    let flags = Flags { listen: vec![text.to_owned()], forward: vec![text.to_owned()], ..Flags::default() };
    let _ = load(None, &flags);
});
