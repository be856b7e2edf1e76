//! Clients that know of the relay, and servers that see them all the same.

use std::net::SocketAddr;

use crate::boxes::*;
use crate::harness::*;
use crate::network::*;
use crate::programs::{client, missing, succeeds};
use crate::streams::*;

const NAMES: &[&str] = &["client", "near", "server"];

fn listener(kind: &str, more: &str) -> String {
    format!(
        "[[listener]]\nname = \"door\"\nkind = \"{kind}\"\nbind = \"[::]:1080\"\nkeep_client_address = true\n\
         allow_open = true\nallow_private = true\n{more}\n"
    )
}

#[test]
fn by_socks() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut near = Station::start(&row["near"], &listener("socks", ""));
    let (listener, address) = row.server(Family::V4);
    let door = SocketAddr::new(row.left("near", Family::V4), 1080);
    let client = row["client"].inside(|| socks5(door, address)).unwrap();
    let mut server = accept(&listener);
    assert_eq!(plain(server.peer_addr().unwrap()), client.local_addr().unwrap());
    assert!(is_cut(&server));
    let mut same = client.try_clone().unwrap();
    talk(&mut same, &mut server);
    drop(same);
    exchange(client, server, 2_000_000, 2_000_000);
    assert_eq!(near.relay.closed()["end"], "finished");
}

#[test]
fn by_one_fixed_target() {
    for family in BOTH {
        let Some(row) = Row::new(NAMES) else { return };
        let (server, address) = row.server(family);
        let mut near = Station::start(&row["near"], &listener("tcp", &format!("target = \"{address}\"")));
        let client = row["client"].connect(SocketAddr::new(row.left("near", family), 1080));
        let server = accept(&server);
        assert_eq!(plain(server.peer_addr().unwrap()), client.local_addr().unwrap());
        exchange(client, server, 2_000_000, 2_000_000);
        assert_eq!(near.relay.closed()["end"], "finished");
    }
}

/// Connections to servers are kept for later requests, but not for those of other clients.
#[test]
fn by_http() {
    if missing(&["curl", "python3"]) {
        return;
    }
    let Some(row) = Row::new(NAMES) else { return };
    let near = Station::start(&row["near"], &listener("http", ""));
    let (listener, address) = row.server(Family::V4);
    // A second client on the same host.
    row["client"].ip("address add 10.0.0.9/24 dev right\n");
    let server = std::thread::spawn(move || {
        [(); 2].map(|()| {
            let mut stream = accept(&listener);
            read_head(&mut stream);
            std::io::Write::write_all(&mut stream, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            (plain(stream.peer_addr().unwrap()).ip(), stream)
        })
    });
    let proxy = format!("http://{}:1080", row.left("near", Family::V4));
    let own = ["10.0.0.1", "10.0.0.9"];
    for ip in own {
        let folder = Folder::new();
        let mut curl = client("curl", &folder);
        curl.args(["-sSf", "--interface", ip, "-x", &proxy]).arg(format!("http://{address}/"));
        assert_eq!(row["client"].inside(|| succeeds(&mut curl)), b"ok");
    }
    let seen = join(server).map(|(ip, _)| ip.to_string());
    assert_eq!(seen, own);
    drop(near);
}
