//! The first frame each way, and what both sides make of it: whatever arrives, nobody is let in.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use ekiden_fuzz::settled;
use ekiden_proto::key::{PrivateKey, PublicKey};
use ekiden_proto::wire::section::{Hello, Initiator, Refusal, Responder, Tickets, Versions};

/// The keys of the example in docs/section-protocol.md, whose first hello is among the seeds.
static LISTENER: LazyLock<PrivateKey> =
    LazyLock::new(|| PrivateKey::from_file("IiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiI=").expect("a key"));
static DIALLER: LazyLock<PublicKey> =
    LazyLock::new(|| "e06Qm75//kTEZaIgA31gjuNYl9Me+XLwf3SJLLD3PxM=".parse().expect("a key"));

static TICKETS: LazyLock<Tickets> = LazyLock::new(Tickets::generate);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((hello, used)) = settled(bytes, Hello::parse) else { return };
    assert_eq!(hello.write(), bytes[..used]);
    as_listener(&hello);
    as_listener_again(&hello);
    as_dialler(&hello);
});

fn as_listener(hello: &Hello) {
    match Responder::read(&LISTENER, hello, Versions::OURS) {
        // Only who has the private key can have made it: it is the seed itself.
        Ok((responder, peer)) => {
            assert_eq!(peer, *DIALLER);
            let (transport, answer) = responder.accept(None);
            assert_eq!(transport.version, 1);
            assert!(Hello::parse(&answer).is_ok());
        }
        Err(Refusal::Version(versions)) => {
            assert_eq!(versions, Versions::OURS);
            assert!(hello.message.is_err() || versions.common(hello.versions).is_none());
        }
        Err(refusal) => assert_eq!(refusal, Refusal::WrongKey),
    }
}

/// Nobody has a ticket of this process.
fn as_listener_again(hello: &Hello) {
    let read = Responder::read_again((&TICKETS, &DIALLER), hello, Versions::OURS, Duration::ZERO).map(drop);
    assert!(matches!(read, Err(Refusal::Stale | Refusal::Version(_))));
}

/// No recording answers a new hello.
fn as_dialler(hello: &Hello) {
    let (initiator, _) = Initiator::begin(&LISTENER, &DIALLER, Versions::OURS);
    assert!(initiator.finish(hello).is_err());
}
