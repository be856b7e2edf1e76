//! The networks themselves, with no relay in them: what the other tests rely on.

use crate::harness::*;
use crate::network::*;
use crate::streams::*;

#[test]
fn hosts_reach_each_other_and_see_who_calls() {
    let Some(row) = Row::new(&["client", "near", "far", "server"]) else { return };
    for family in BOTH {
        let (listener, address) = row.server(family);
        let mut client = row["client"].connect(address);
        let mut server = accept(&listener);
        talk(&mut client, &mut server);
        assert_eq!(plain(server.peer_addr().unwrap()), client.local_addr().unwrap());
        assert!(!is_cut(&server), "{family:?}: nobody is between");
    }
}
