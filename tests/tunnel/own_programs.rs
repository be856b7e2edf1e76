//! Programs on the boxes themselves: their packets go into the device and come back out of it.

use std::io::ErrorKind;
use std::net::SocketAddr;

use crate::harness::*;
use crate::network::*;
use crate::sites::*;

#[test]
fn a_box_reaches_the_other_site_too() {
    let Some(mut sites) = Sites::new("") else { return };
    for family in BOTH {
        for (from, to) in [("left", "server"), ("right", "client")] {
            let (mut client, mut server) = sites.connect(from, to, family);
            assert_eq!(plain(server.peer_addr().unwrap()), client.local_addr().unwrap());
            cross(&mut client, &mut server);
            drop(server);
            assert_eq!(hear_out(&mut client), (Vec::new(), Ending::Clean));
            drop(client);
            sites.closed();
        }
        let address = SocketAddr::new(sites.row.left("server", family), NOBODY);
        let error = sites.row["left"].try_connect(address).expect_err("nobody listens");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
}

/// What servers see of them is an address of the box, and which one is the operator's choice.
#[test]
fn their_address_is_what_is_wanted() {
    let Some(row) = hosts(&BOTH) else { return };
    let mut texts = Texts::new(&row, "");
    texts.left += "source = \"10.0.0.2\"\n";
    let sites = Sites::start(row, texts);
    let (_client, server) = sites.connect("left", "server", Family::V4);
    assert_eq!(plain(server.peer_addr().unwrap()).ip(), sites.row.left("left", Family::V4));
}
