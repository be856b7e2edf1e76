//! Certificates and entries as relays would have made them by other clocks, or in other states.

use std::fs;
use std::time::SystemTime;

use ekiden_proto::fleet::{Certificate, CertificateRequest, FleetEntry, RelayState, SignedCertificate, SigningKey};
use ekiden_proto::key::PrivateKey;

use crate::etcd::Etcd;
use crate::scene::*;

/// Seconds since 1970, by a clock that is so many seconds ahead.
fn unix(ahead: i64) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    now.as_secs().checked_add_signed(ahead).unwrap()
}

impl Site {
    pub fn private(&self) -> PrivateKey {
        PrivateKey::from_file(&fs::read_to_string(&self.key.file).unwrap()).unwrap()
    }

    /// What the fleet signs for this relay: valid from and until so many seconds from now.
    pub fn certified(&self, fleet: &Fleet, (from, until): (i64, i64)) -> SignedCertificate {
        let CertificateRequest { key, verify_key: signing } = CertificateRequest::for_relay(&self.private());
        let fleet_key = SigningKey::from_file(&fs::read_to_string(&fleet.file).unwrap()).unwrap();
        let certificate = Certificate {
            fleet: fleet_key.verify_key(),
            name: self.name.clone(),
            address: self.address.to_string().parse().unwrap(),
            key,
            verify_key: signing,
            not_before: unix(from),
            not_after: unix(until),
        };
        certificate.sign(&fleet_key)
    }

    /// What it says with such a certificate, by a clock that is so many seconds ahead.
    pub fn entry(&self, fleet: &Fleet, window: (i64, i64), ahead: i64) -> FleetEntry {
        let (issued, at) = (self.certified(fleet, window), unix(ahead));
        FleetEntry {
            signed_certificate: issued,
            sequence: at * 1000,
            created_at: at,
            state: RelayState::Serving,
            neighbours: Vec::new(),
        }
    }

    /// Puts it into etcd.
    pub fn says(&self, etcd: &Etcd, entry: &FleetEntry) {
        let key = self.private();
        let place =
            key.public_key().0.iter().fold(Fleet::SHARED.to_owned(), |place, byte| format!("{place}{byte:02x}"));
        etcd.put(&place, &entry.sign(&SigningKey::derive_for_relay(&key)));
    }
}
