//! What becomes of a first packet by the verdict of the gate, which a rule of the test's plays here.

use std::io::ErrorKind;

use crate::harness::accept;
use crate::network::{Network, apply};
use crate::sockets::{CLIENT, SERVER, address, connect, listen, talk};

/// Makes every first packet what the gate would make it.
fn gate(network: &Network, verdict: &str) {
    network.middle.nft(&format!(
        "table inet gate\ndelete table inet gate\ntable inet gate {{ chain gate {{ \
         type filter hook prerouting priority raw + 1; meta mark & 0xffff0000 == 0xe1100000 meta mark set {verdict}; }}; }}"
    ));
}

#[test]
fn passed_refused_and_unreachable_are_what_the_client_sees() {
    let Some(network) = Network::new() else { return };
    apply(&network.middle, &["tproxy://[::]:7001?interfaces=lan0"]);
    let _relay = listen(&network.middle, address("::", 7001), Some(0xe106_0000));
    for (client, server) in CLIENT.into_iter().zip(SERVER) {
        let (from, to) = (address(client, 4000), address(server, 80));
        let origin = listen(&network.server, to, None);
        let try_it = || connect(&network.client, from, to, None);
        gate(&network, "0xe1040000");
        assert_eq!(try_it().unwrap_err().kind(), ErrorKind::ConnectionRefused);
        gate(&network, "0xe1050000");
        // What Linux makes of "address unreachable" in IPv6 and of "host unreachable" in IPv4.
        assert_eq!(try_it().unwrap_err().kind(), ErrorKind::HostUnreachable);
        gate(&network, "0xe1030000");
        talk(&mut try_it().unwrap(), &mut accept(&origin));
    }
    let counted = ["refused", "passed", "unanswered_0", "asymmetric"].map(|name| network.middle.counted(name));
    assert_eq!(counted, [2, 2, 0, 0]);
    // An ICMP error that comes while connect(2) still sends is only remembered, and the packet sent again.
    let unreachable = network.middle.counted("unreachable");
    assert!(unreachable >= 2);
    assert_eq!(network.middle.counted("caught_0"), 4 + unreachable);
}

/// The lower half of a mark is somebody else's.
#[test]
fn marks_of_others_are_left_alone() {
    let Some(network) = Network::new() else { return };
    apply(&network.middle, &["tproxy://[::]:7001?interfaces=lan0"]);
    gate(&network, "0xe1030000 | 0x42");
    network.middle.nft(
        "table inet other { counter seen { }; chain other { type filter hook forward priority 0; \
         iifname \"lan0\" meta mark 0x42 counter name seen; }; }",
    );
    let origin = listen(&network.server, address(SERVER[0], 80), None);
    let mut client = connect(&network.client, address(CLIENT[0], 4000), address(SERVER[0], 80), None).unwrap();
    talk(&mut client, &mut accept(&origin));
    let seen = network.middle.run("nft", "list counter inet other seen");
    assert!(seen.contains("packets 1 "), "{seen}");
}
