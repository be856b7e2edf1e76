//! Names in certificates: a returned name is part of the certificate, and contains no control characters.
#![no_main]

use ekiden_proto::wire::x509::{not_after, subject_name};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = not_after(bytes);
    let Some(name) = subject_name(bytes) else { return };
    assert!(!name.is_empty() && !name.chars().any(char::is_control));
    assert!(bytes.windows(name.len()).any(|window| window == name.as_bytes()));
});
