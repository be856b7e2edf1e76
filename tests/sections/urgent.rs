//! Urgent data of clients and servers through relays: every byte arrives in its place, by records or as it is.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;

use ekiden_sys::outq::unacknowledged;
use socket2::SockRef;

use crate::harness::*;
use crate::relays::*;

/// Sends the bytes, of which the one at `mark` is urgent.
fn send_urgent(stream: &mut TcpStream, bytes: &[u8], mark: usize) {
    stream.write_all(&bytes[..mark]).unwrap();
    assert_eq!(SockRef::from(&*stream).send_out_of_band(&bytes[mark..=mark]).unwrap(), 1);
    stream.write_all(&bytes[mark + 1..]).unwrap();
}

/// The relay that the sender speaks to is stopped meanwhile, and finds all bytes at once when it goes on.
fn sent_together(relay: &Relay, stream: &mut TcpStream, bytes: &[u8], mark: usize) {
    relay.stop();
    send_urgent(stream, bytes, mark);
    eventually("all bytes to arrive", || (unacknowledged(stream.as_fd()).unwrap() == 0).then_some(()));
    relay.signal("CONT");
}

#[test]
fn what_is_behind_an_urgent_byte_crosses_relays() {
    for encrypt in [false, true] {
        let mut chain = Chain::of_kind(2, encrypt);
        let (mut client, mut server) = chain.pair();
        for before in [0, 300_000] {
            let writers = [&client, &server].map(|stream| {
                let mut stream = stream.try_clone().unwrap();
                std::thread::spawn(move || stream.write_all(&pattern(before)).unwrap())
            });
            assert!(read_exactly(&mut server, before) == pattern(before));
            assert!(read_exactly(&mut client, before) == pattern(before));
            writers.into_iter().for_each(join);
            let bytes = pattern(1000);
            for mark in [0, 500, 999] {
                sent_together(&chain.home, &mut client, &bytes, mark);
                assert!(read_exactly(&mut server, 1000) == bytes, "up, encrypt = {encrypt}, mark at {mark}");
                sent_together(&chain.relays[1], &mut server, &bytes, mark);
                assert!(read_exactly(&mut client, 1000) == bytes, "down, encrypt = {encrypt}, mark at {mark}");
            }
        }
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut server), b"");
        drop(server);
        assert_eq!(read_all(&mut client), b"");
        assert_eq!(chain.home.closed()["end"], "finished");
    }
}
