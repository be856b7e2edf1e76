//! Tests with access to internals: CPUs without AES instructions, and the transcript in `docs/section-protocol.md`,
//! which an independent program in another language generated.

use super::super::record::{HEADER_LENGTH, TAG_LENGTH};
use super::*;
use crate::addr::ClientAddr;
use crate::wire::section::{Open, OpenAnswer, Purpose, TraceId, chunk, datagram};
use crate::wire::socks5::DatagramHeader;

/// The versions in the transcript.
const OURS: Versions = Versions { oldest: 1, newest: 2 };

fn key(byte: u8) -> PrivateKey {
    PrivateKey::from_file(&base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [byte; 32])).unwrap()
}

fn parse(bytes: &[u8]) -> Hello {
    Hello::parse(bytes).unwrap().0
}

/// Runs a handshake with these ephemeral keys. Returns the hellos and the transport keys, those of the dialler first.
fn handshake(aes: [bool; 2], ephemeral_keys: [[u8; 32]; 2]) -> ([Vec<u8>; 2], [TransportKeys; 2]) {
    let (dialler, listener) = (key(0x11), key(0x22));
    let (prologue, to) = (Hello::encode_versions(OURS), listener.public_key());
    let noise = builder(&dialler, &prologue).remote_public_key(&to.0).unwrap();
    let noise = noise.fixed_ephemeral_key_for_testing_only(&ephemeral_keys[0]);
    let (initiator, hello) = NoiseInitiator::begin_with(noise, OURS, aes[0], None);
    let noise = builder(&listener, &prologue).fixed_ephemeral_key_for_testing_only(&ephemeral_keys[1]);
    let (responder, peer) = NoiseResponder::read_with(noise, &parse(&hello), OURS, aes[1]).unwrap();
    assert_eq!(peer, dialler.public_key());
    let (down, answer) = responder.accept(None);
    let up = initiator.finish(&parse(&answer)).unwrap();
    ([hello, answer], [up, down])
}

fn seal(key: &mut RecordKey, plaintext: &[u8]) -> Vec<u8> {
    let mut record = [&[0; HEADER_LENGTH], plaintext, &[0; TAG_LENGTH]].concat();
    key.seal(&mut record);
    record
}

fn open(key: &mut RecordKey, record: &[u8]) -> Vec<u8> {
    let mut record = record.to_vec();
    let range = key.open(&mut record).unwrap();
    record[range].to_vec()
}

#[test]
fn cipher_is_aes_gcm_only_if_both_sides_have_aes() {
    for (aes, cipher) in [
        ([true, true], Cipher::AesGcm),
        ([true, false], Cipher::ChaChaPoly),
        ([false, true], Cipher::ChaChaPoly),
        ([false, false], Cipher::ChaChaPoly),
    ] {
        let (_, [mut up, mut down]) = handshake(aes, [[1; 32], [2; 32]]);
        assert_eq!((up.version, down.version), (2, 2));
        for key in [&up.send_key, &up.open, &down.send_key, &down.open] {
            assert_eq!(key.cipher(), cipher);
        }
        assert_eq!(open(&mut down.open, &seal(&mut up.send_key, b"up")), b"up");
        assert_eq!(open(&mut up.open, &seal(&mut down.send_key, b"down")), b"down");
    }
}

#[test]
fn dialler_refuses_an_answer_with_unsupported_versions() {
    let (dialler, listener) = (key(0x11), key(0x22));
    let (initiator, hello) = NoiseInitiator::begin(&dialler, &listener.public_key(), OURS);
    let (responder, _) = NoiseResponder::read(&listener, &parse(&hello), OURS).unwrap();
    let future = Versions { oldest: 3, newest: 4 };
    let (_, answer) = NoiseResponder { versions: future, ..responder }.accept(None);
    assert_eq!(initiator.finish(&parse(&answer)).err(), Some(Refusal::Version(future).into()));
}

#[test]
fn handshake_matches_the_transcript_of_the_specification() {
    let ([hello, hello_back], [mut up, mut down]) = handshake([true, false], [[0x33; 32], [0x44; 32]]);
    let session = Open::read(&documented("OPEN, plaintext")).unwrap();
    let answer = OpenAnswer::read(&documented("ANSWER, plaintext")).unwrap();
    for (name, bytes) in [
        ("hello of the dialler", hello),
        ("hello of the listener", hello_back),
        ("OPEN, plaintext", session.write()),
        ("OPEN, record 0 up", seal(&mut up.send_key, &session.write())),
        ("first payload, record 1 up", seal(&mut up.send_key, b"GET")),
        ("END, record 2 up", seal(&mut up.send_key, b"")),
        ("ANSWER, plaintext", answer.write()),
        ("ANSWER, record 0 down", seal(&mut down.send_key, &answer.write())),
    ] {
        assert_eq!(bytes, documented(name), "{name}");
    }
    assert!(session.encrypt && !session.early);
    assert_eq!((session.hops_left, session.purpose), (3, Purpose::Stream("example.com:443".parse().unwrap())));
    assert_eq!(answer.relay_times, [std::time::Duration::from_micros(1500)]);
}

/// Covers a session in chunks, and the OPEN of the next session on the same connection.
#[test]
fn chunks_match_the_specification() {
    let (_, [mut up, _]) = handshake([true, false], [[0x33; 32], [0x44; 32]]);
    let session = Open::read(&documented("OPEN of a reusable section, plaintext")).unwrap();
    assert!(session.reusable && !session.encrypt);
    let next = Open { trace: TraceId([0xcd; 16]), ..session.clone() };
    for (name, bytes) in [
        ("OPEN of a reusable section, record 0 up", seal(&mut up.send_key, &session.write())),
        ("first chunk", [&chunk::header(3)[..], b"GET"].concat()),
        (
            "END of chunks, with record 1 up",
            [&chunk::header(0)[..], &seal(&mut up.send_key, &chunk::end_plaintext(3))].concat(),
        ),
        ("OPEN of the next session, record 2 up", seal(&mut up.send_key, &next.write())),
    ] {
        assert_eq!(bytes, documented(name), "{name}");
    }
}

/// The OPEN of a lane, and of an association of this client, in the specification.
fn open_without_a_stream(purpose: Purpose, client: &str) -> Open {
    Open {
        early: false,
        encrypt: true,
        reusable: false,
        hops_left: 3,
        trace: TraceId(std::array::from_fn(|index| index as u8)),
        client: ClientAddr(client.parse().unwrap()),
        path: vec![PublicKey([0xab; 32])],
        purpose,
    }
}

#[test]
fn lane_open_matches_the_specification() {
    let (lane, documented) =
        (open_without_a_stream(Purpose::Datagrams, "0.0.0.0:0"), documented("OPEN of a lane, plaintext"));
    assert_eq!((Open::read(&documented), lane.write()), (Ok(lane), documented));
}

#[test]
fn association_messages_match_the_specification() {
    let open = open_without_a_stream(Purpose::Association, "192.0.2.7:4000");
    let plaintext = documented("OPEN of an association, plaintext");
    assert_eq!((Open::read(&plaintext), open.write()), (Ok(open), plaintext));

    let (up, target) = (documented("datagram up, plaintext"), "dns.example:53".parse().unwrap());
    let mut written = Vec::new();
    datagram::write_destination(&target, &mut written);
    assert_eq!([&written, &b"query"[..]].concat(), up);
    assert_eq!(datagram::read_destination(&up), Ok((target, b"query".as_slice())));

    // A listener sends the header of a SOCKS5 datagram without its first three bytes.
    let (down, source) = (documented("datagram down, plaintext"), "192.0.2.53:53".parse().unwrap());
    let mut written = Vec::new();
    DatagramHeader::write(source, &mut written);
    assert_eq!([&written[3..], b"answer"].concat(), down);
    assert_eq!(datagram::read_source(&down), Ok((source, b"answer".as_slice())));
}

/// The bytes in the specification under a line `NAME:`.
fn documented(name: &str) -> Vec<u8> {
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/section-protocol.md"));
    let lines = text.lines().skip_while(|line| line.strip_suffix(':') != Some(name)).skip(1);
    let hex: String = lines.map_while(|line| line.strip_prefix("  ")).collect();
    assert!(!hex.is_empty(), "no bytes for {name:?}");
    let digits: Vec<char> = hex.chars().collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&String::from_iter(pair), 16).unwrap()).collect()
}
