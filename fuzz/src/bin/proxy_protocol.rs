//! Headers of the PROXY protocol, both versions: addresses and ports survive a round trip.
#![no_main]

use ekiden_fuzz::check_prefixes;
use ekiden_proto::wire::proxy_protocol::{
    ClientTls, Extensions, MAX_HEADER, ProxiedConnection, ProxyVersion, parse, write,
};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((connection, used)) = check_prefixes(bytes, parse) else { return };
    assert!(used <= MAX_HEADER);
    let Some(connection) = connection else { return };
    let ProxiedConnection { source, destination } = connection;
    let canonical = [source, destination].map(|address| address.ip().to_canonical());
    let is_mixed = canonical[0].is_ipv4() != canonical[1].is_ipv4();
    let common_name = Some(String::from_utf8_lossy(&bytes[..bytes.len().min(85)]).into());
    let tls = ClientTls { version: "TLSv1.3", cipher: "TLS_AES_128_GCM_SHA256", has_certificate: true, common_name };
    let extensions = Extensions { unique_id: Some("4bf92f3577b34da6a3ce929d0e0e4736"), tls: Some(&tls) };
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let written = write(version, &connection, extensions);
        let (read, read_bytes) = parse(&written).expect("our own header");
        assert_eq!(read_bytes, written.len());
        let Some(read) = read else {
            assert!(is_mixed && version == ProxyVersion::V1);
            continue;
        };
        assert_eq!([read.source, read.destination].map(|address| address.ip().to_canonical()), canonical);
        assert_eq!([read.source.port(), read.destination.port()], [source.port(), destination.port()]);
    }
});
