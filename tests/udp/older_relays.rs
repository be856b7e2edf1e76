//! Associations through relays that support only version 2 of the section protocol, which has no associations, and
//! through a relay that does not read.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ekiden_proto::key::PrivateKey;
use ekiden_proto::wire::section::record::{HEADER_LENGTH, TAG_LENGTH};
use ekiden_proto::wire::section::{
    Hello, NoiseResponder, Open, OpenAnswer, Purpose, RecordKey, TransportKeys, Versions,
};

use crate::client::*;
use crate::harness::*;
use crate::relays::*;

/// Answers the hello of a dialling relay. `None` if the connection ends or the handshake fails.
fn handshake(section: &mut TcpStream, site: &PrivateKey, versions: Versions) -> Option<TransportKeys> {
    let mut bytes = vec![0; Hello::HEADER_LENGTH];
    section.read_exact(&mut bytes).ok()?;
    let length = usize::from(u16::from_be_bytes([bytes[8], bytes[9]]));
    bytes.extend(read_exactly(section, length));
    let (responder, _) = NoiseResponder::read(site, &Hello::parse(&bytes).unwrap().0, versions).ok()?;
    let (keys, answer) = responder.accept(None);
    section.write_all(&answer).unwrap();
    Some(keys)
}

/// Reads the OPEN from the first record. `None` for a connection that is kept ready, and ends without a record.
fn read_open(section: &mut TcpStream, key: &mut RecordKey) -> Option<Open> {
    let mut record = vec![0; HEADER_LENGTH];
    section.read_exact(&mut record).ok()?;
    let length = usize::from(u16::from_be_bytes([record[0], record[1]]));
    record.extend(read_exactly(section, length));
    let plaintext = key.open(&mut record).unwrap();
    Some(Open::read(&record[plaintext]).unwrap())
}

fn private_key(site: &Site) -> PrivateKey {
    PrivateKey::from_file(&std::fs::read_to_string(&site.key.file).unwrap()).unwrap()
}

/// Starts a relay of version 2. A dialling relay must not send it an OPEN of a later version: an OPEN closes the
/// connection, so that the session ends with another cause than the version.
fn serve_older(site: &Site) -> std::net::SocketAddr {
    let key = private_key(site);
    serve(move |mut section| {
        let Some(mut keys) = handshake(&mut section, &key, Versions { oldest: 1, newest: 2 }) else { return };
        assert_eq!(read_open(&mut section, &mut keys.open), None);
    })
}

#[test]
fn version_2_relay_is_refused_with_a_reason() {
    let (old, home) = (Site::new(), Site::new());
    let table = old.table_at(serve_older(&old), "old", "");
    let mut relay = home.home(&(table + &route_all_through("way", &["old".to_owned()])), AUTO);
    let (mut tcp, reply, _) = request_association(relay.address(), &ANY_ADDRESS);
    assert_eq!(reply, 1, "general failure");
    assert!(is_closed(&mut tcp));
    let closed = relay.closed();
    assert_eq!((&closed["end"], &closed["path"]), (&"hop_protocol".into(), &"way".into()), "{closed}");
    assert!(
        closed["detail"].as_str().unwrap().contains("the relay supports version 2 of the section protocol"),
        "{closed}"
    );
}

#[test]
fn version_2_relay_behind_a_relay_is_refused_with_a_reason() {
    let (old, middle, home) = (Site::new(), Site::new(), Site::new());
    let address = serve_older(&old);
    let table = old.table_at(address, "old", "");
    let mut between = middle.relay(&table, "allow_open = true\n");
    let way = route_all_through("way", &["middle".to_owned(), "old".to_owned()]);
    let mut relay = home.home(&(middle.table("middle", "") + &table + &way), AUTO);
    let (_tcp, reply, _) = request_association(relay.address(), &ANY_ADDRESS);
    assert_eq!(reply, 1, "general failure");
    let closed = relay.closed();
    let detail = closed["detail"].as_str().unwrap();
    assert!(detail.contains("behind middle") && detail.contains("reported by middle"), "{closed}");
    let detail = between.closed()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("the relay supports version 2 of the section protocol"), "{detail}");
}

/// Datagrams for a relay that does not read are dropped when the queue is full or when they are late.
#[test]
fn datagrams_for_a_stalled_relay_are_dropped() {
    let (site, home) = (Site::new(), Site::new());
    let key = private_key(&site);
    let (done, wait) = channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let address = serve(move |mut section| {
        let Some(mut keys) = handshake(&mut section, &key, Versions::SUPPORTED) else { return };
        let Some(open) = read_open(&mut section, &mut keys.open) else { return };
        assert_eq!(open.purpose, Purpose::Association);
        let answer = OpenAnswer { outcome: Ok(()), relay_times: vec![Duration::ZERO] }.write();
        let mut record = [&[0; HEADER_LENGTH][..], &answer, &[0; TAG_LENGTH]].concat();
        keys.send_key.seal(&mut record);
        section.write_all(&record).unwrap();
        let _ = wait.lock().unwrap().recv();
    });
    let table = site.table_at(address, "deaf", "");
    let mut relay = home.home(&(table + &route_all_through("way", &["deaf".to_owned()])), AUTO);
    let client = Client::new(relay.address());
    let target = header("192.0.2.1:9".parse().unwrap());
    // The socket buffers of the kernel hold some megabytes. Then the queue is full, and the datagrams in the queue
    // become late.
    eventually("dropped datagrams", || {
        (0..200).for_each(|_| client.send(&target, &pattern(1400)));
        (dropped(&relay, "door", "full") > 0 && dropped(&relay, "door", "late") > 0).then_some(())
    });
    // The stalled relay does not delay the end of the session.
    drop(client);
    assert_eq!(relay.closed()["path"], "way");
    drop(done);
}
