//! Server names in the first bytes of a client: more bytes do not change a result, and a name is not empty.
#![no_main]

use ekiden_proto::wire::WireError;
use ekiden_proto::wire::server_name::read;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let answer = read(bytes);
    if let Ok((Some(name), 0)) = &answer {
        assert!(!name.host.is_empty() && !name.host.chars().any(char::is_control));
    }
    let half = read(&bytes[..bytes.len() / 2]);
    assert!(half == Err(WireError::Incomplete) || half == answer);
});
