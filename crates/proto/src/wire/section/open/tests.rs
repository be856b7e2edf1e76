use super::*;

/// Nothing in it but what must be.
fn smallest() -> Open {
    Open {
        early: false,
        encrypt: false,
        hops_left: 0,
        trace: TraceId([9; 16]),
        client: ClientAddr("192.0.2.7:4000".parse().unwrap()),
        path: vec![],
        purpose: Purpose::Stream("a:1".parse().unwrap()),
    }
}

/// A lane, and nothing in it but what must be.
fn lane() -> Open {
    Open { encrypt: true, purpose: Purpose::Datagrams, ..smallest() }
}

fn largest() -> Open {
    let name = ["a"; 127].join(".");
    Open {
        early: true,
        encrypt: true,
        hops_left: MAX_HOPS,
        client: ClientAddr("[2001:db8::7]:65535".parse().unwrap()),
        path: (0..MAX_HOPS).map(|n| PublicKey([n; key::KEY_LENGTH])).collect(),
        purpose: Purpose::Stream(Target::new(Host::parse(&name).unwrap(), 65_535).unwrap()),
        ..smallest()
    }
}

fn failed(cause: Cause, relay: u8, of_hop: bool) -> OpenAnswer {
    OpenAnswer {
        outcome: Err(OpenFailure { cause, relay, is_about_hop: of_hop }),
        relay_times: vec![Duration::from_micros(7)],
    }
}

#[test]
fn opens_round_trip() {
    let to = |target: &str| Open { purpose: Purpose::Stream(target.parse().unwrap()), ..smallest() };
    for open in [
        smallest(),
        largest(),
        to("192.0.2.1:443"),
        to("[2001:db8::1]:443"),
        Open { early: true, ..smallest() },
        Open { encrypt: true, ..smallest() },
        lane(),
        Open { early: true, path: vec![PublicKey([1; 32])], ..lane() },
        Open { client: ClientAddr("[fe80::1]:0".parse().unwrap()), ..smallest() },
    ] {
        assert_eq!(Open::read(&open.write()), Ok(open));
    }
    assert_eq!(largest().write().len(), Open::MAX_LENGTH);
    let mapped = Open { client: ClientAddr("[::ffff:192.0.2.7]:4000".parse().unwrap()), ..smallest() };
    assert_eq!(mapped.write(), smallest().write());
}

#[test]
fn an_open_looks_like_this() {
    let open = Open { early: true, hops_left: 3, path: vec![PublicKey([0xab; 32])], ..smallest() };
    let expected =
        [b"\x01\x03".as_slice(), &[9; 16], b"\x01\xc0\x00\x02\x07\x0f\xa0", b"\x01", &[0xab; 32], b"\x03\x01a\x00\x01"];
    assert_eq!(open.write(), expected.concat());
    let expected = [b"\x06\0".as_slice(), &[9; 16], b"\x01\xc0\x00\x02\x07\x0f\xa0", b"\0", b"\x01\0\0\0\0\0\0"];
    assert_eq!(lane().write(), expected.concat());
}

#[test]
fn whatever_is_cut_short_or_goes_on_is_refused() {
    for whole in [smallest().write(), largest().write(), lane().write()] {
        for end in 0..whole.len() {
            assert!(matches!(Open::read(&whole[..end]), Err(WireError::Invalid(_))), "{end} bytes");
        }
        assert!(matches!(Open::read(&[whole.as_slice(), b"\0"].concat()), Err(WireError::Invalid(_))));
    }
    for whole in [OpenAnswer { outcome: Ok(()), relay_times: vec![] }.write(), failed(Cause::Refused, 1, true).write()]
    {
        for end in 0..whole.len() {
            assert!(matches!(OpenAnswer::read(&whole[..end]), Err(WireError::Invalid(_))), "{end} bytes");
        }
        assert!(matches!(OpenAnswer::read(&[whole.as_slice(), b"\0"].concat()), Err(WireError::Invalid(_))));
    }
}

#[test]
fn opens_out_of_bounds_or_in_another_form_are_refused() {
    // Everything up to the place of the client, the path and the target.
    let head = [b"\0\0".as_slice(), &[9; 16]].concat();
    let client = b"\x01\xc0\x00\x02\x07\x0f\xa0".as_slice();
    let no_path = b"\0".as_slice();
    for (what, bytes) in [
        ("an unknown flag", [b"\x08\0", &head[2..], client, no_path, b"\x03\x01a\0\x01"].concat()),
        ("a lane with a target", [b"\x06\0", &head[2..], client, no_path, b"\x03\x01a\0\x01"].concat()),
        ("a lane with a port", [b"\x06\0", &head[2..], client, no_path, b"\x01\0\0\0\0\0\x01"].concat()),
        ("a lane to a host", [b"\x06\0", &head[2..], client, no_path, b"\x01\xc0\0\x02\x01\0\0"].concat()),
        ("a lane of the other family", [b"\x06\0", &head[2..], client, no_path, b"\x04", &[0; 18]].concat()),
        ("a lane without records", [b"\x04\0", &head[2..], client, no_path, b"\x01\0\0\0\0\0\0"].concat()),
        ("no lane, and no target", [&head, client, no_path, b"\x01\0\0\0\0\0\0"].concat()),
        ("17 hops left", [b"\0\x11", &head[2..], client, no_path, b"\x03\x01a\0\x01"].concat()),
        ("a client by name", [&head, b"\x03\x01a\x0f\xa0".as_slice(), no_path, b"\x03\x01a\0\x01"].concat()),
        ("an unknown client", [&head, b"\x02".as_slice(), no_path, b"\x03\x01a\0\x01"].concat()),
        ("17 relays", [&head, client, b"\x11", &[1; 17 * 32], b"\x03\x01a\0\x01"].concat()),
        ("an unknown target", [&head, client, no_path, b"\x02a\0\x01"].concat()),
        ("port 0", [&head, client, no_path, b"\x03\x01a\0\0"].concat()),
        ("an empty name", [&head, client, no_path, b"\x03\x00\0\x01"].concat()),
        ("capital letters", [&head, client, no_path, b"\x03\x01A\0\x01"].concat()),
        ("a dot at the end", [&head, client, no_path, b"\x03\x02a.\0\x01"].concat()),
        ("an address as a name", [&head, client, no_path, b"\x03\x07192.0.2\0\x01"].concat()),
        ("an address as a name", [&head, client, no_path, b"\x03\x09192.0.2.1\0\x01"].concat()),
        ("IPv4 in IPv6", [&head, client, no_path, b"\x04\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x01\0\x01"].concat()),
    ] {
        assert!(matches!(Open::read(&bytes), Err(WireError::Invalid(_))), "{what}");
    }
    let good = [&head, client, no_path, b"\x03\x01a\0\x01"].concat();
    assert_eq!(Open::read(&good), Ok(smallest()));
}

#[test]
fn answers_round_trip() {
    let times = vec![Duration::from_micros(1_500), Duration::ZERO, MAX_TIME];
    let success = OpenAnswer { outcome: Ok(()), relay_times: times };
    assert_eq!(success.write(), b"\0\0\0\x03\0\0\x05\xdc\0\0\0\0\xd6\x93\xa4\0");
    assert_eq!(OpenAnswer::read(&success.write()), Ok(success));
    for cause in Cause::ALL {
        for (relay, of_hop) in [(0, false), (MAX_HOPS, true)] {
            let answer = failed(cause, relay, of_hop);
            assert_eq!(OpenAnswer::read(&answer.write()), Ok(answer));
        }
    }
}

#[test]
fn answers_are_written_within_their_bounds() {
    let endless = OpenAnswer {
        outcome: Err(OpenFailure { cause: Cause::Loop, relay: 200, is_about_hop: false }),
        relay_times: vec![Duration::MAX; 300],
    };
    let bounded = OpenAnswer {
        outcome: Err(OpenFailure { cause: Cause::Loop, relay: MAX_HOPS, is_about_hop: false }),
        relay_times: vec![MAX_TIME; MAX_TIMES],
    };
    assert_eq!(endless.write().len(), OpenAnswer::MAX_LENGTH);
    assert_eq!(OpenAnswer::read(&endless.write()), Ok(bounded));
}

#[test]
fn a_cause_of_the_future_is_a_hop_that_failed() {
    for of_hop in [false, true] {
        let mut bytes = failed(Cause::Refused, 2, of_hop).write();
        bytes[0] = 200;
        assert_eq!(OpenAnswer::read(&bytes), Ok(failed(Cause::HopFailed, 2, of_hop)));
    }
}

#[test]
fn answers_out_of_bounds_are_refused() {
    for bytes in [
        b"\x00\x01\x00\x00".as_slice(),
        b"\x00\x00\x01\x00",
        b"\x01\x11\x00\x00",
        b"\x01\x00\x02\x00",
        b"\x00\x00\x00\x01\xd6\x93\xa4\x01",
        &[b"\x00\x00\x00\x12".as_slice(), &[0; 18 * 4]].concat(),
    ] {
        assert!(matches!(OpenAnswer::read(bytes), Err(WireError::Invalid(_))), "{bytes:?}");
    }
}

#[test]
fn trace_ids_differ_and_show_as_hex() {
    assert_ne!(TraceId::generate(), TraceId::generate());
    assert_eq!(TraceId([0x0a; 16]).to_string(), "0a".repeat(16));
}
