//! Upgrades of a box with a tunnel: the device and its routes stay, flows and packets go on.

use crate::harness::*;
use crate::lanes::*;
use crate::network::*;
use crate::sites::*;

#[test]
fn the_device_stays_with_everything_that_goes_through() {
    let Some(mut sites) = Sites::new("") else { return };
    let mut flows = BOTH.map(|family| sites.connect("client", "server", family));
    for (client, server) in &mut flows {
        talk(client, server);
    }
    for family in BOTH {
        reaches(&sites.row["client"], sites.address("server", family));
    }
    // Its number comes first: another device would have another.
    let index = |sites: &Sites, host: &str| {
        let shown = sites.row[host].run("ip", &["-o", "link", "show", "dev", DEVICE], "");
        shown.split(':').next().unwrap().to_owned()
    };
    for host in ["left", "right"] {
        let before = (index(&sites, host), traces(&sites.row[host]));
        let station = if host == "left" { &mut sites.left } else { &mut sites.right };
        station.relay.signal("USR2");
        station.relay.upgraded();
        assert_eq!((index(&sites, host), traces(&sites.row[host])), before, "{host}");
        for (client, server) in &mut flows {
            talk(client, server);
            cross(client, server);
        }
        for family in BOTH {
            reaches(&sites.row["client"], sites.address("server", family));
            let (mut client, mut server) = sites.connect("client", "server", family);
            talk(&mut client, &mut server);
        }
    }
    drop(flows);
    let (first, serving) = (sites.left.relay.id(), sites.left.serves());
    signal(first, "TERM");
    ended(first);
    assert!(!traces(&sites.row["left"]).is_empty(), "the device is the other process's");
    signal(serving, "TERM");
    ended(serving);
    assert_eq!(traces(&sites.row["left"]), Vec::<String>::new());
}
