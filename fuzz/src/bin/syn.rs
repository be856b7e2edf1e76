//! TCP SYN packets: a parsed packet survives a round trip, and a truncated one gives an equal result or `Incomplete`.
#![no_main]

use std::net::{IpAddr, SocketAddr};

use ekiden_proto::wire::WireError;
use ekiden_proto::wire::syn::Syn;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let answer = Syn::parse(bytes);
    for end in [0, 20, 33, 40, 53, bytes.len() / 2, bytes.len().saturating_sub(1)] {
        let shorter = Syn::parse(&bytes[..end.min(bytes.len())]);
        assert!(
            shorter == Err(WireError::Incomplete) || shorter == answer,
            "{end} bytes: {shorter:?}, all: {answer:?}"
        );
    }
    if answer != Err(WireError::Incomplete) {
        assert_eq!(Syn::parse(&[bytes, b"\0"].concat()), answer);
    }
    if let Ok(syn) = answer {
        assert!(syn.client.0.port() != 0 && syn.server.0.port() != 0);
        assert_eq!(Syn::parse(&write(&syn)), answer);
    }
});

/// Writes the shortest packet with these fields.
fn write(syn: &Syn) -> Vec<u8> {
    let mut packet = ip(syn.client.0, syn.server.0);
    packet.extend(syn.client.0.port().to_be_bytes());
    packet.extend(syn.server.0.port().to_be_bytes());
    packet.extend(syn.sequence.to_be_bytes());
    packet.extend([0, 0, 0, 0, 0x50, 0x02]);
    packet
}

fn ip(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    match (client.ip(), server.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let head: &[u8] = &[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
            [head, &from.octets(), &to.octets()].concat()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let head: &[u8] = &[0x60, 0, 0, 0, 0, 20, 6, 64];
            [head, &from.octets(), &to.octets()].concat()
        }
        _ => panic!("{client} and {server} are of two families"),
    }
}
