//! Connections that bypass the relay, because no listener intercepts them or no relay runs.

use crate::harness::{accept, close};
use crate::network::{Network, admit, apply};
use crate::sockets::{CLIENT, RELAY_MARK, SERVER, TPROXY, address, connect, exchange, is_idle_listener, listen};

/// Packets reach no listener if the gate gives no verdict, or if the gate admits them but the listener is closed.
#[test]
fn unanswered_packets_are_forwarded_and_counted() {
    let Some(network) = Network::new() else { return };
    apply(&network.middle, &[TPROXY]);
    let relay = listen(&network.middle, address("::", 7001), Some(RELAY_MARK));
    let connect_directly = || {
        for (client, server) in CLIENT.into_iter().zip(SERVER) {
            let origin = listen(&network.server, address(server, 80), None);
            let mut client = connect(&network.client, address(client, 0), address(server, 80), None).unwrap();
            exchange(&mut client, &mut accept(&origin));
        }
    };
    let counted = || ["caught_0", "unanswered_0", "asymmetric"].map(|name| network.middle.counter(name));
    connect_directly();
    assert_eq!(counted(), [2, 2, 0]);
    close(relay);
    admit(&network.middle);
    connect_directly();
    assert_eq!(counted(), [4, 4, 0]);
}

#[test]
fn connections_older_than_the_rules_continue() {
    let Some(network) = Network::new() else { return };
    let origin = listen(&network.server, address(SERVER[0], 80), None);
    let mut client = connect(&network.client, address(CLIENT[0], 4000), address(SERVER[0], 80), None).unwrap();
    let mut server = accept(&origin);
    let _relay = listen(&network.middle, address("::", 7001), Some(RELAY_MARK));
    apply(&network.middle, &[TPROXY]);
    exchange(&mut client, &mut server);
    exchange(&mut server, &mut client);
}

#[test]
fn denied_targets_and_unlisted_clients_bypass_the_relay() {
    let Some(network) = Network::new() else { return };
    let relay = listen(&network.middle, address("::", 7001), Some(RELAY_MARK));
    admit(&network.middle);
    for (key, caught) in [
        ("clients=10.1.0.3", false),
        ("clients=10.1.0.0/24", true),
        ("deny=*:80", false),
        ("deny=10.3.0.0/24:81", true),
        ("allow=*:81", false),
        ("allow=10.3.0.2:80", true),
    ] {
        apply(&network.middle, &[&format!("{TPROXY}&{key}")]);
        let origin = listen(&network.server, address(SERVER[0], 80), None);
        let mut client = connect(&network.client, address(CLIENT[0], 0), address(SERVER[0], 80), None).unwrap();
        exchange(&mut client, &mut accept(if caught { &relay } else { &origin }));
        assert!(is_idle_listener(if caught { &origin } else { &relay }), "{key}");
        assert_eq!(network.middle.counter("caught_0"), u64::from(caught), "{key}");
    }
}

#[test]
fn connections_to_the_host_itself_bypass_the_relay() {
    let Some(network) = Network::new() else { return };
    apply(&network.middle, &[TPROXY]);
    let _relay = listen(&network.middle, address("::", 7001), Some(RELAY_MARK));
    let own = listen(&network.middle, address("10.2.0.1", 22), None);
    let mut client = connect(&network.client, address(CLIENT[0], 4000), address("10.2.0.1", 22), None).unwrap();
    exchange(&mut client, &mut accept(&own));
    assert_eq!(network.middle.counter("caught_0"), 0);
}

/// The client's packets use another route: only the server's packets pass through the host `middle`.
#[test]
fn asymmetric_answers_are_counted() {
    let Some(network) = Network::new() else { return };
    network.route_around_middle(true);
    apply(&network.middle, &[TPROXY]);
    let origin = listen(&network.server, address(SERVER[0], 80), None);
    let mut client = connect(&network.client, address(CLIENT[0], 4000), address(SERVER[0], 80), None).unwrap();
    exchange(&mut client, &mut accept(&origin));
    assert_eq!((network.middle.counter("caught_0"), network.middle.counter("asymmetric")), (0, 1));
}

/// Each ekiden instance on a host uses its own marks.
#[test]
fn two_instances_do_not_interfere() {
    let Some(network) = Network::new() else { return };
    let config = |instance: u8, port: u16, target: &str| {
        let folder = crate::harness::Folder::new();
        let text = format!(
            "version = 1\n[transparent]\ninstance = {instance}\n[[listener]]\nkind = \"tproxy\"\nbind = \"[::]:{port}\"\n\
             interfaces = [\"lan0\"]\nallow = [\"{target}\"]\n"
        );
        let file = folder.write("ekiden.toml", text);
        network.middle.run_ekiden(&["rules", "apply", "-c", file.to_str().unwrap()]);
    };
    // The instance with the lower number takes precedence for its targets.
    for (instance, port, target) in [(1, 7001, "*:80"), (2, 7002, "*"), (1, 7001, "*:80"), (2, 7002, "*")] {
        config(instance, port, target);
    }
    admit(&network.middle);
    let first = listen(&network.middle, address("::", 7001), Some(RELAY_MARK));
    let second = listen(&network.middle, address("::", 7002), Some(0xe202_0000));
    for (relay, port) in [(&first, 80), (&second, 81)] {
        let mut client = connect(&network.client, address(CLIENT[0], 4000), address(SERVER[0], port), None).unwrap();
        exchange(&mut client, &mut accept(relay));
    }
    network.middle.run_ekiden(&["rules", "remove"]);
    let mut client = connect(&network.client, address(CLIENT[0], 4001), address(SERVER[0], 81), None).unwrap();
    exchange(&mut client, &mut accept(&second));
}
