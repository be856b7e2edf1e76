//! One of two relays is killed: both ends of running sessions are told, new connections find a way, and once it is back
//! it is used again.

use serde_json::Value;

use crate::boxes::*;
use crate::harness::*;
use crate::network::*;
use crate::streams::*;

/// Sessions that are silent, and one in the middle of a transfer.
#[test]
fn sessions_are_reset() {
    for kind in Far::ALL {
        for victim in ["near", "far"] {
            let Some(pair) = Pair::new(kind, Told::default()) else { return };
            if victim == "far" && pair.far.is_none() {
                continue;
            }
            let mut silent = BOTH.map(|family| pair.connect(family));
            for (client, server) in &mut silent {
                talk(client, server);
            }
            let (mut client, server) = pair.connect(Family::V4);
            let writer = pour(&server);
            read_exactly(&mut client, 1 << 20);
            let Pair { near, far, row: _row, .. } = pair;
            let (dead, _other) = if victim == "near" { (Some(near), far) } else { (far, Some(near)) };
            drop(dead.map(Station::kill));
            assert_eq!(hear_out(&mut client).1, Ending::Reset, "{kind:?}, {victim}");
            join(writer);
            for (client, server) in &mut silent {
                assert!(is_reset(client) && is_reset(server), "{kind:?}, {victim}");
            }
        }
    }
}

/// New connections while the far relay is away: through the near one alone, or without any, but they work.
#[test]
fn the_far_relay_is_away_and_comes_back() {
    for kind in [Far::Transparent, Far::Section, Far::Encrypted] {
        let Some(mut pair) = Pair::new(kind, Told::default()) else { return };
        let again = pair.far.take().expect("a relay").kill();
        for family in BOTH.into_iter().chain(BOTH) {
            let (mut client, mut server) = pair.connect(family);
            talk(&mut client, &mut server);
            assert_eq!(is_cut(&server), kind == Far::Transparent, "{kind:?}");
        }
        pair.far = Some(again.start(&pair.row["far"]));
        for family in BOTH {
            let family = eventually("the far relay to be used", || {
                let (mut client, mut server) = pair.connect(family);
                talk(&mut client, &mut server);
                let far = pair.far.as_ref().expect("a relay");
                (!far.relay.sessions().is_empty()).then_some(family)
            });
            assert!(BOTH.contains(&family));
        }
        let near = &mut pair.near.relay;
        near.signal("TERM");
        let count = |name: &str, events: &[Value]| events.iter().filter(|event| event["event"] == name).count();
        let events = near.rest();
        let told = if kind.is_called() { 1 } else { 0 };
        assert_eq!(["bypass_began", "bypass_ended"].map(|name| count(name, &events)), [told, told], "{events:?}");
    }
}

#[test]
fn the_near_relay_is_away_and_comes_back() {
    for kind in Far::ALL {
        let Some(pair) = Pair::new(kind, Told::default()) else { return };
        let Pair { kind, row, near, far } = pair;
        let again = near.kill();
        let (listener, address) = row.server(Family::V4);
        let mut client = row["client"].connect(address);
        let mut server = accept(&listener);
        talk(&mut client, &mut server);
        assert_eq!(is_cut(&server), kind == Far::Transparent);
        let near = again.start(&row["near"]);
        let pair = Pair { kind, row, near, far };
        // What began without it goes on without it.
        talk(&mut client, &mut server);
        for family in BOTH {
            let (mut client, mut server) = pair.connect(family);
            talk(&mut client, &mut server);
            assert!(is_cut(&server));
            assert_eq!(pair.near.relay.sessions().len(), 1);
            drop((client, server));
            eventually("its end", || pair.near.relay.sessions().is_empty().then_some(()));
        }
    }
}
