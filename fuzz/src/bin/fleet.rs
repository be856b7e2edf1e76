//! Entries in the shared storage of a fleet: no panic, and no entry is accepted without valid signatures.
#![no_main]

use ekiden_proto::fleet::{EntryError, FleetEntry, SignedCertificate, VerifyKey};

/// The fleet key that signed the seeds.
const FLEET: &str = "WTg+R3cwkrb71IPWm7IjyZuAc1BkzIsyBsQxPqQPnh8=";

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let fleet: VerifyKey = FLEET.parse().expect("a fleet key");
    match FleetEntry::parse_and_verify(bytes, &fleet, None) {
        // Only a seed can be valid: the fuzzer does not have the signing keys.
        Ok(entry) => assert_eq!(entry.signed_certificate.verify(&fleet), Ok(())),
        Err(
            EntryError::KeyMismatch | EntryError::NotYetValid(_) | EntryError::Expired(_) | EntryError::Replayed { .. },
        ) => {
            unreachable!("only the roster returns these errors")
        }
        Err(_) => {}
    }
    if let Some(issued) = std::str::from_utf8(bytes).ok().and_then(|text| SignedCertificate::parse(text).ok()) {
        assert_eq!(issued.to_string().as_bytes(), bytes, "a certificate has exactly one encoding");
    }
});
