//! Both sides of the protocol, tested with byte strings and with each other.

use super::*;
use crate::addr::Target;
use crate::wire::feeding::feed;
use crate::wire::{Parsed, WireError};

/// Parses a request. Panics at an error that has a reply code of its own.
fn request_or_wire(bytes: &[u8]) -> Parsed<Socks5Request> {
    Socks5Request::parse(bytes).map_err(|error| match error {
        Socks5RequestError::Wire(error) => error,
        other => panic!("{other}"),
    })
}

#[test]
fn greetings_offer_the_listed_methods() {
    for (bytes, none, user_pass) in [
        (b"\x05\x01\x00".as_slice(), true, false),
        (b"\x05\x02\x00\x02", true, true),
        (b"\x05\x03\x01\x02\x80", false, true),
        (b"\x05\x01\xff", false, false),
    ] {
        let greeting = feed(bytes, Greeting::parse);
        assert_eq!((greeting.offers(Method::NoAuth), greeting.offers(Method::UserPass)), (none, user_pass));
    }
    for bytes in [b"\x04".as_slice(), b"\x05\x00", b"GET", b"\x16\x03"] {
        assert!(matches!(Greeting::parse(bytes), Err(WireError::Invalid(_))), "{bytes:?}");
    }
    assert!(feed(&greeting(true), Greeting::parse).offers(Method::UserPass));
    assert!(!feed(&greeting(false), Greeting::parse).offers(Method::UserPass));
}

#[test]
fn methods_round_trip() {
    for method in [Some(Method::NoAuth), Some(Method::UserPass), None] {
        assert_eq!(feed(&method_reply(method), parse_method), method);
    }
    for bytes in [b"\x00".as_slice(), b"\x05\x01", b"\x05\x03", b"SSH", b"HTTP"] {
        assert!(matches!(parse_method(bytes), Err(WireError::Invalid(_))), "{bytes:?}");
    }
}

#[test]
fn credentials_round_trip_and_hide_the_password() {
    let longest = vec![b'x'; 255];
    for (user, password) in [(b"me".to_vec(), b"s\0crit\xff".to_vec()), (longest.clone(), longest)] {
        let credentials = Credentials { user, password };
        assert_eq!(feed(&credentials.write().unwrap(), Credentials::parse), credentials);
    }
    let shown = format!("{:?}", Credentials { user: b"me".to_vec(), password: b"secret".to_vec() });
    assert!(shown.contains("me") && !shown.contains("secret"), "{shown}");
}

#[test]
fn empty_passwords_are_read_but_invalid_lengths_not_written() {
    for (user, password) in [(0, 1), (1, 0), (256, 1), (1, 256)] {
        let credentials = Credentials { user: vec![b'u'; user], password: vec![b'p'; password] };
        assert!(credentials.write().is_err(), "{user} {password}");
    }
    assert_eq!(feed(b"\x01\x01u\x00", Credentials::parse).password, b"");
    assert!(matches!(Credentials::parse(b"\x05"), Err(WireError::Invalid(_))));
}

#[test]
fn credentials_replies_round_trip() {
    assert!(feed(&credentials_reply(true), parse_credentials_reply));
    assert!(!feed(&credentials_reply(false), parse_credentials_reply));
    assert!(!feed(&[1, 0xff], parse_credentials_reply));
    assert!(!feed(&CREDENTIALS_NOT_CHECKED, parse_credentials_reply));
    assert!(matches!(parse_credentials_reply(&[5, 0]), Err(WireError::Invalid(_))));
}

#[test]
fn requests_round_trip() {
    for text in ["192.0.2.1:80", "[2001:db8::1]:443", "example.com:65535", "a:1"] {
        let target: Target = text.parse().unwrap();
        let read = feed(&request(&target), request_or_wire);
        assert_eq!(read, Socks5Request::Connect(target));
    }
    for (bytes, target) in [
        (b"\x05\x01\x00\x03\x09192.0.2.9\x00\x50".as_slice(), "192.0.2.9:80"),
        (b"\x05\x01\x00\x04\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\x00\x02\x01\x00\x50", "192.0.2.1:80"),
    ] {
        assert_eq!(feed(bytes, request_or_wire), Socks5Request::Connect(target.parse().unwrap()));
    }
    for (bytes, address) in [
        (b"\x05\x03\x00\x01\xc0\x00\x02\x01\x00\x50".as_slice(), Some("192.0.2.1:80")),
        (b"\x05\x03\x00\x04\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\x00\x02\x01\x00\x50", Some("192.0.2.1:80")),
        // RFC 1928, section 6: a UDP client that does not know its address yet sends "all zeros".
        (b"\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00", None),
        (b"\x05\x03\x00\x01\x00\x00\x00\x00\x00\x50", None),
        (b"\x05\x03\x00\x01\xc0\x00\x02\x01\x00\x00", None),
        (b"\x05\x03\xff\x03\x03A.b\x00\x50", None),
    ] {
        let address = address.map(|text: &str| text.parse().unwrap());
        assert_eq!(feed(bytes, request_or_wire), Socks5Request::UdpAssociate(address), "{bytes:?}");
    }
}

#[test]
fn bind_has_the_address_of_the_expected_peer() {
    for (bytes, peer) in [
        (b"\x05\x02\x00\x01\xc0\x00\x02\x01\x00\x15".as_slice(), "192.0.2.1:21"),
        (b"\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00", "0.0.0.0:0"),
    ] {
        assert_eq!(feed(bytes, request_or_wire), Socks5Request::Bind(peer.parse().unwrap()), "{bytes:?}");
    }
}

#[test]
fn bad_requests_give_the_matching_error() {
    use Socks5RequestError::{AddressTypeNotSupported, CommandNotSupported, InvalidTarget, Wire};
    for (bytes, error) in [
        (b"\x04".as_slice(), Wire(WireError::Invalid("not SOCKS5"))),
        (b"\x05\x01\x00\x02", AddressTypeNotSupported),
        (b"\x05\x09\x00\x00", AddressTypeNotSupported),
        // The error is reported at the end of the request, so that no byte of the request is left unread.
        (b"\x05\x00\x00\x01\xc0\x00\x02\x01\x00", Wire(WireError::Incomplete)),
        (b"\x05\x00\x00\x01\xc0\x00\x02\x01\x00\x50", CommandNotSupported),
        (b"\x05\xf0\x00\x03\x01a\x00\x50", CommandNotSupported),
        (b"\x05\x02\x00\x03\x01a\x00\x50", AddressTypeNotSupported),
        (b"\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x00", InvalidTarget),
        (b"\x05\x01\x00\x03\x00\x00\x50", InvalidTarget),
        (b"\x05\x01\x00\x03\x03a\0b\x00\x50", InvalidTarget),
        (b"\x05\x01\x00\x03\x02\xc3\xa9\x00\x50", InvalidTarget),
    ] {
        assert_eq!(Socks5Request::parse(bytes), Err(error), "{bytes:?}");
    }
}

#[test]
fn datagrams_have_the_address_of_their_target_or_source() {
    for (bytes, fragment, target, payload) in [
        (b"\0\0\0\x01\xc0\x00\x02\x01\x00\x35query".as_slice(), 0, "192.0.2.1:53", "query"),
        (b"\0\0\x81\x03\x03A.b\x00\x50", 0x81, "a.b:80", ""),
        (b"\xff\xff\0\x04\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\x00\x02\x01\x00\x50x", 0, "192.0.2.1:80", "x"),
    ] {
        let (header, used) = DatagramHeader::parse(bytes).unwrap();
        assert_eq!((header.fragment, header.target.to_string().as_str()), (fragment, target));
        assert_eq!(&bytes[used..], payload.as_bytes());
    }
    for source in ["192.0.2.1:53", "[2001:db8::1]:65535"] {
        let mut bytes = Vec::new();
        DatagramHeader::write(source.parse().unwrap(), &mut bytes);
        assert!(bytes.len() <= DatagramHeader::MAX_WRITTEN);
        let header = feed(&bytes, DatagramHeader::parse);
        assert_eq!(header, DatagramHeader { fragment: 0, target: source.parse().unwrap() });
    }
    for bytes in [b"\0\0\0\x02\0\0\0\0\0\x50".as_slice(), b"\0\0\0\x01\xc0\x00\x02\x01\0\0", b"\0\0\0\x03\0\0\x50"] {
        assert!(matches!(DatagramHeader::parse(bytes), Err(WireError::Invalid(_))), "{bytes:?}");
    }
    assert_eq!(DatagramHeader::parse(b"\0\0\0\x01\xc0"), Err(WireError::Incomplete));
}

#[test]
fn replies_round_trip() {
    for answer in Reply::ALL {
        for bound in [None, Some("192.0.2.1:1080"), Some("[2001:db8::1]:9"), Some("[::ffff:192.0.2.1]:9")] {
            let bytes = reply(answer, bound.map(|bound| bound.parse().unwrap()));
            assert_eq!(feed(&bytes, parse_reply), answer, "{bound:?}");
            assert_eq!(bytes[1], answer.byte());
        }
    }
    assert_eq!(reply(Reply::Succeeded, None), b"\x05\x00\x00\x01\0\0\0\0\0\0");
    assert_eq!(feed(b"\x05\xf4\x00\x03\x03a.b\x00\x50", parse_reply), Reply::GeneralFailure);
    for bytes in [b"\x04".as_slice(), b"\x05\x00\x00\x02", b"HTTP/1.1"] {
        assert!(matches!(parse_reply(bytes), Err(WireError::Invalid(_))), "{bytes:?}");
    }
}

#[test]
fn reply_bytes_missing_never_exceeds_the_reply() {
    for whole in [
        reply(Reply::Succeeded, None),
        reply(Reply::Succeeded, Some("[2001:db8::1]:9".parse().unwrap())),
        b"\x05\x00\x00\x03\x00\x00\x50".to_vec(),
        b"\x05\x01\x00\x03\x0bexample.com\x00\x50".to_vec(),
        [b"\x05\x00\x00\x03\xff".as_slice(), &[b'n'; 257]].concat(),
    ] {
        let mut read = 0;
        while reply_bytes_missing(&whole[..read]) > 0 {
            read += reply_bytes_missing(&whole[..read]);
            assert!(read <= whole.len(), "{whole:?}");
        }
        assert_eq!(parse_reply(&whole[..read]).map(|(_, used)| used), Ok(whole.len()));
        for end in 0..whole.len() {
            let missing = reply_bytes_missing(&whole[..end]);
            assert!((1..=whole.len() - end).contains(&missing), "{missing} after {end} bytes of {whole:?}");
        }
    }
    for wrong in [b"\x04".as_slice(), b"HTTP/1.1 400", b"\x05\x00\x00\x02"] {
        assert_eq!(reply_bytes_missing(wrong), 0, "{wrong:?}");
    }
}

#[test]
fn causes_map_to_reply_codes_and_back() {
    for (cause, reply, back) in [
        (Cause::Refused, Reply::ConnectionRefused, Cause::Refused),
        (Cause::Unreachable, Reply::HostUnreachable, Cause::Unreachable),
        (Cause::TimedOut, Reply::TtlExpired, Cause::TimedOut),
        (Cause::NameNotFound, Reply::HostUnreachable, Cause::Unreachable),
        (Cause::NameServerFailed, Reply::HostUnreachable, Cause::Unreachable),
        (Cause::Denied, Reply::NotAllowed, Cause::DeniedByHop),
        (Cause::DeniedByHop, Reply::NotAllowed, Cause::DeniedByHop),
        (Cause::HopProtocol, Reply::GeneralFailure, Cause::HopFailed),
        (Cause::HopFailed, Reply::GeneralFailure, Cause::HopFailed),
        (Cause::Reset, Reply::GeneralFailure, Cause::HopFailed),
        (Cause::Exhausted, Reply::GeneralFailure, Cause::HopFailed),
    ] {
        assert_eq!(Reply::from(cause), reply);
        assert_eq!(reply.cause(), Some(back));
    }
    assert_eq!(Reply::Succeeded.cause(), None);
    assert_eq!(Reply::CommandNotSupported.cause(), Some(Cause::HopProtocol));
    assert_eq!(Reply::NetworkUnreachable.cause(), Some(Cause::Unreachable));
}
