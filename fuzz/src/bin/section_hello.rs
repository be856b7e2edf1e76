//! The handshake messages of a section, as both sides parse them: no fuzzed input authenticates.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use ekiden_fuzz::check_prefixes;
use ekiden_proto::key::{PrivateKey, PublicKey};
use ekiden_proto::wire::section::{Hello, NoiseInitiator, NoiseResponder, Refusal, TicketIssuer, Versions};

/// The listener's private key in the example of docs/section-protocol.md. Its first hello is the seed `example`.
static LISTENER: LazyLock<PrivateKey> =
    LazyLock::new(|| PrivateKey::from_file("IiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiI=").expect("a key"));
static DIALLER: LazyLock<PublicKey> =
    LazyLock::new(|| "e06Qm75//kTEZaIgA31gjuNYl9Me+XLwf3SJLLD3PxM=".parse().expect("a key"));

static TICKETS: LazyLock<TicketIssuer> = LazyLock::new(TicketIssuer::generate);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((hello, used)) = check_prefixes(bytes, Hello::parse) else { return };
    assert_eq!(hello.write(), bytes[..used]);
    check_listener(&hello);
    check_listener_resumption(&hello);
    check_dialler(&hello);
});

fn check_listener(hello: &Hello) {
    match NoiseResponder::read(&LISTENER, hello, Versions::SUPPORTED) {
        // Only the owner of the dialler's private key can create a valid hello, so this input is a seed: `example`,
        // with the versions 1 and 2, or `dialler`, with version 1.
        Ok((responder, peer)) => {
            assert_eq!(peer, *DIALLER);
            let (transport, answer) = responder.accept(None);
            assert_eq!(transport.version, hello.versions.newest);
            assert!(matches!(hello.versions, Versions { oldest: 1, newest: 1 | 2 }));
            assert!(Hello::parse(&answer).is_ok());
        }
        Err(Refusal::Version(versions)) => {
            assert_eq!(versions, Versions::SUPPORTED);
            assert!(hello.message.is_err() || versions.common(hello.versions).is_none());
        }
        Err(refusal) => assert_eq!(refusal, Refusal::WrongKey),
    }
}

/// Checks that resumption fails: no input contains a ticket of this process.
fn check_listener_resumption(hello: &Hello) {
    let read =
        NoiseResponder::read_resumption(&TICKETS, &DIALLER, hello, Versions::SUPPORTED, Duration::ZERO).map(drop);
    assert!(matches!(read, Err(Refusal::UnknownTicket | Refusal::Version(_))));
}

/// Checks that no recorded answer completes a new handshake.
fn check_dialler(hello: &Hello) {
    let (initiator, _) = NoiseInitiator::begin(&LISTENER, &DIALLER, Versions::SUPPORTED);
    assert!(initiator.finish(hello).is_err());
}
