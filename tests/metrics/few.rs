//! However many clients and targets there are, there are few numbers, and none that tells of them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};

use crate::harness::*;
use crate::relays::*;
use crate::scrape::*;

const MANY: u16 = 1000;

/// A session from one loopback address to another.
fn session(home: SocketAddr, from: Ipv4Addr, to: SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&home.into()).unwrap();
    let mut stream: std::net::TcpStream = socket.into();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let SocketAddr::V4(to) = to else { panic!("IPv4 only") };
    let [high, low] = to.port().to_be_bytes();
    let [a, b, c, d] = to.ip().octets();
    stream.write_all(&[5, 1, 0, 5, 1, 0, 1, a, b, c, d, high, low]).unwrap();
    assert_eq!(read_exactly(&mut stream, 12)[3], 0, "a tunnel");
    stream.write_all(b"?").unwrap();
    assert_eq!(read_exactly(&mut stream, 1), b"!");
}

#[test]
fn a_thousand_clients_and_targets_add_no_line() {
    let site = Site::new();
    let home = site.home("", AUTO);
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            if stream.read(&mut [0]).is_ok() {
                let _ = stream.write_all(b"!");
            }
        }
    });
    let one = |number: u16| {
        let [high, low] = number.to_be_bytes();
        session(home.address(), Ipv4Addr::new(127, 3, high, low), (Ipv4Addr::new(127, 4, high, low), port).into());
    };
    let ended = |count: u32| {
        until(&home, "ekiden_sessions_closed_total", &["reason=\"finished\""], move |ended| is(ended, count));
        Scrape::of(&home)
    };
    one(1);
    let before = ended(1).lines().len();
    (2..=MANY).for_each(one);
    let after = ended(u32::from(MANY));
    // What a section is like may be told for the first time; a client is at most one line, and these are a thousand.
    assert!(after.lines().len() < before + 200, "{} lines, and {before} before", after.lines().len());
    assert!(after.lines().len() < 1000, "{}", after.0);
    // Labels only: the digits of a port are found by chance in some sum of seconds.
    let telling = ["127.".to_owned(), format!(":{port}"), format!("\"{port}\"")];
    let told: Vec<&str> =
        after.lines().into_keys().filter(|series| telling.iter().any(|s| series.contains(s))).collect();
    assert_eq!(told, [""; 0]);
}
