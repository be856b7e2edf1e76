//! TCP SYN packets: a parsed packet survives a round trip, and a truncated one gives an equal result or `Incomplete`.
#![no_main]

use ekiden_fuzz::write_ip_header;
use ekiden_proto::wire::WireError;
use ekiden_proto::wire::ip::TCP;
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
    let mut packet = write_ip_header(syn.client.0.ip(), syn.server.0.ip(), TCP, 20);
    packet.extend(syn.client.0.port().to_be_bytes());
    packet.extend(syn.server.0.port().to_be_bytes());
    packet.extend(syn.sequence.to_be_bytes());
    packet.extend([0, 0, 0, 0, 0x50, 0x02]);
    packet
}
