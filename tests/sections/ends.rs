//! Ends and resets travel over three relays as over none: each closes its direction, and a reset is never an end.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use crate::harness::*;
use crate::relays::*;
use crate::streams::*;

/// A pair through three relays, plain and encrypted.
fn each(check: impl Fn(&mut Chain, TcpStream, TcpStream)) {
    for encrypt in [false, true] {
        let mut chain = Chain::of_kind(3, encrypt);
        let (client, server) = chain.pair();
        check(&mut chain, client, server);
    }
}

fn all_end_by(chain: &mut Chain, home: &str, others: &str) {
    assert_eq!(chain.home.closed()["end"], home);
    for relay in &mut chain.relays {
        assert_eq!(session_closed(relay)["end"], others);
    }
}

#[test]
fn a_client_that_has_said_all_still_hears_the_answer() {
    each(|chain, mut client, mut server| {
        client.write_all(b"question").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut server), b"question");
        let answer = send(&server, pattern(200_000));
        assert!(read_all(&mut client) == pattern(200_000));
        join(answer);
        all_end_by(chain, "finished", "finished");
    });
}

#[test]
fn a_server_that_has_said_all_still_hears_the_client() {
    each(|chain, mut client, mut server| {
        server.write_all(b"greeting").unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut client), b"greeting");
        let reply = send(&client, pattern(200_000));
        assert!(read_all(&mut server) == pattern(200_000));
        join(reply);
        all_end_by(chain, "finished", "finished");
    });
}

#[test]
fn an_end_without_a_byte_is_an_end() {
    each(|chain, mut client, mut server| {
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(hear_out(&mut server), (vec![], Ending::Clean));
        server.shutdown(Shutdown::Write).unwrap();
        assert_eq!(hear_out(&mut client), (vec![], Ending::Clean));
        all_end_by(chain, "finished", "finished");
    });
}

#[test]
fn a_reset_travels_up() {
    each(|chain, mut client, mut server| {
        talk(&mut client, &mut server);
        reset(client);
        assert!(is_reset(&mut server));
        all_end_by(chain, "reset_by_client", "reset_by_client");
    });
}

#[test]
fn a_reset_travels_down() {
    each(|chain, mut client, mut server| {
        talk(&mut client, &mut server);
        reset(server);
        assert!(is_reset(&mut client));
        all_end_by(chain, "reset_by_server", "reset_by_server");
    });
}

/// In the middle of a transfer, with bytes under way everywhere: what arrives is a beginning of what was sent.
#[test]
fn a_reset_in_the_middle_of_a_transfer_is_no_end() {
    each(|_, mut client, mut server| {
        let writer = pour(&server);
        assert!(read_exactly(&mut client, 1_000_000) == pattern_blocks(1_000_000));
        reset(client);
        assert!(is_reset_pouring(&mut server, writer));
    });
    each(|_, mut client, mut server| {
        let writer = pour(&client);
        assert!(read_exactly(&mut server, 1_000_000) == pattern_blocks(1_000_000));
        reset(server);
        assert!(is_reset_pouring(&mut client, writer));
    });
}

/// What [`pour`] sends.
fn pattern_blocks(count: usize) -> Vec<u8> {
    pattern(65_536).into_iter().cycle().take(count).collect()
}

/// After its own end a client may still be gone for good, and every relay on the way has to notice.
#[test]
fn a_reset_after_an_end_is_seen_by_all() {
    each(|chain, client, mut server| {
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut server), b"");
        reset(client);
        // Reading goes on saying "end of stream"; the socket itself knows (EPIPE in CLOSE-WAIT, tcp(7)).
        eventually("the reset", || server.take_error().unwrap());
        all_end_by(chain, "reset_by_client", "reset_by_client");
    });
}
