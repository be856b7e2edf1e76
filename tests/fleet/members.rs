//! Relays join, drain, leave and are upgraded without losing a session.

use std::fs;
use std::net::TcpListener;

use serde_json::Value;

use super::etcd::Etcd;
use super::fixture::*;
use super::harness::*;

#[test]
fn relays_discover_each_other_and_carry_sessions() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo_server());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let mut at_home = home.start(&etcd, BY_OSAKA);
    // No relay has the name osaka yet, so the next path of the route is used.
    assert_eq!(path_of_a_session(&mut at_home, target), "direct");
    // home has an entry before osaka starts: two relays that join at the same time may reject each other at first.
    home.entry_key(&etcd);
    let mut at_osaka = osaka.start(&etcd, "");
    wait_fleet_change(&mut at_home, "joined", "osaka");
    wait_fleet_change(&mut at_osaka, "joined", "home");
    wait_path(&mut at_home, target, "by-osaka");
    let closed = at_osaka.next(|event| event["peer"] == "home");
    assert_eq!(closed["end"], "finished");
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    let names: Vec<_> = members(&at_home).iter().map(|member| member["name"].clone()).collect();
    assert_eq!(names, ["home", "osaka"]);
    let status = at_home.status(&[]);
    assert!(status.contains("FLEET"), "{status}");
}

#[test]
fn path_with_an_absent_relay_opens_no_session_at_the_other_relays() {
    const BY_BOTH: &str =
        "[[path]]\nname = \"by-both\"\nrelays = [\"osaka\", \"kobe\"]\n[[route]]\npath = [\"by-both\"]\n";
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo_server());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let mut at_home = home.start(&etcd, BY_BOTH);
    home.entry_key(&etcd);
    let mut at_osaka = osaka.start(&etcd, "");
    wait_fleet_change(&mut at_home, "joined", "osaka");
    wait_fleet_change(&mut at_osaka, "joined", "home");
    assert!(socks5(at_home.address_of(1), target).is_err());
    let closed = closed(&mut at_home);
    assert!(closed["detail"].as_str().unwrap().contains("the fleet has no relay of this name now"), "{closed}");
    at_osaka.signal("TERM");
    assert!(at_osaka.remaining_events().iter().all(|event| event["event"] != "closed"));
}

#[test]
fn draining_relay_keeps_open_sessions_and_gets_no_new_sessions() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo_server());
    // The lease outlasts the test, so that only osaka itself can delete its entry.
    let (_home, mut at_home, osaka, mut at_osaka) =
        pair_with(&etcd, &fleet, |osaka| osaka.config_with_times(&etcd, "1h", "1s", ""));
    let mut running = session(&at_home, target);
    at_osaka.signal("TERM");
    wait_fleet_change(&mut at_home, "draining", "osaka");
    assert_eq!(member(&at_home, "osaka").unwrap()["state"], "draining");
    assert_eq!(path_of_a_session(&mut at_home, target), "direct");
    assert_echo(&mut running);
    drop(running);
    assert_eq!(closed(&mut at_home)["path"], "by-osaka");
    assert_eq!(at_osaka.exit_code(), Some(0));
    wait_fleet_change(&mut at_home, "left", "osaka");
    assert!(etcd.entries().iter().all(|(_, value)| !value.contains("name: osaka")));
    // osaka joins a second time.
    let at_osaka = osaka.start(&etcd, "");
    wait_fleet_change(&mut at_home, "joined", "osaka");
    wait_path(&mut at_home, target, "by-osaka");
    drop(at_osaka);
}

#[test]
fn relay_without_certificate_can_read_the_fleet_but_not_connect() {
    let (etcd, fleet, other) = (Etcd::start(), Fleet::new(), Fleet::new());
    let (osaka, stranger) = (fleet.site("osaka"), other.site("stranger"));
    let mut at_osaka = osaka.start(&etcd, "");
    osaka.entry_key(&etcd);
    // The stranger has the fleet's public key, which is public, and no certificate of the fleet.
    let folder = Folder::new();
    let (url, key, file) = (etcd.url(), &fleet.public, &stranger.key.file);
    let text = format!(
        "version = 1\nprivate_key = {file:?}\n[[listener]]\nkind = \"socks\"\nbind = \"127.0.0.1:0\"\n\
         [fleet]\netcd = [\"{url}\"]\nkey = \"{key}\"\nprefix = \"{}\"\n\
         [[path]]\nname = \"by-osaka\"\nrelays = [\"osaka\"]\n[[route]]\npath = \"by-osaka\"\n",
        Fleet::SHARED
    );
    let config = folder.write("ekiden.toml", text);
    let mut reader = Relay::run(&["-c", config.to_str().unwrap()], 1);
    wait_fleet_change(&mut reader, "joined", "osaka");
    assert!(socks5(reader.address(), echo_server()).is_err());
    assert_eq!(at_osaka.closed()["end"], "unauthenticated");
    assert_eq!(etcd.entries().len(), 1);
}

#[test]
fn joining_and_draining_members_do_not_disturb_sessions() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo_server());
    let (_home, mut at_home, _osaka, _at_osaka) = pair(&etcd, &fleet);
    let mut running: Vec<_> = (0..20).map(|_| session(&at_home, target)).collect();
    for name in ["kobe", "kyoto", "nara"] {
        let site = fleet.site(name);
        let at_site = site.start(&etcd, "");
        wait_fleet_change(&mut at_home, "joined", name);
        running.push(session(&at_home, target));
        running.iter_mut().for_each(assert_echo);
        at_site.signal("TERM");
        wait_fleet_change(&mut at_home, "draining", name);
        running.iter_mut().for_each(assert_echo);
    }
    drop(running);
    for _ in 0..23 {
        let closed = closed(&mut at_home);
        assert_eq!((closed["end"].as_str(), closed["path"].as_str()), (Some("finished"), Some("by-osaka")));
    }
}

#[test]
fn local_configuration_overrides_the_fleet() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo_server());
    let (home, osaka, kobe) = (fleet.site("home"), fleet.site("osaka"), fleet.site("kobe"));
    let folder = Folder::new();
    let peers = folder.write("peers", format!("{} alice\n", home.key.public));
    let config = osaka.config(&etcd, "");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("fleet = true", &format!("fleet = true\npeers = {peers:?}"))).unwrap();
    let mut at_osaka = osaka.run(&config);
    osaka.entry_key(&etcd);
    let (address, key) = (osaka.address, &osaka.key.public);
    let relay = format!("[[relay]]\nname = \"osaka\"\naddress = \"{address}\"\nkey = \"{key}\"\n");
    let mut at_home = home.start(&etcd, &(relay + BY_OSAKA));
    wait_fleet_change(&mut at_osaka, "joined", "home");
    wait_path(&mut at_home, target, "by-osaka");
    let is_finished = |event: &Value| event["event"] == "closed" && event["end"] == "finished";
    assert_eq!(at_osaka.next(is_finished)["peer"], "alice", "the session of wait_path");
    // More sessions than the pooled connections that were opened before osaka had read home's entry.
    for _ in 0..20 {
        assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
        assert_eq!(at_osaka.next(is_finished)["peer"], "alice");
    }
    let _at_kobe = kobe.start(&etcd, "");
    // osaka is in the configuration and in the fleet, and is counted once.
    assert_eq!(wait_fleet_change(&mut at_home, "joined", "kobe")["relays"], 2);
}

#[test]
fn upgrade_does_not_announce_draining_or_leaving() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo_server());
    // Even on a busy machine, the lease must outlast the pause between the last entry of the first process and the
    // first entry of the new process.
    let (_home, mut at_home, osaka, mut at_osaka) = pair_with(&etcd, &fleet, |osaka| {
        osaka.config_with_times(&etcd, "15s", "1s", "[timeouts]\nupgrade_drain = \"2s\"\n")
    });
    let (entry_key, number) = (osaka.entry_key(&etcd), || number(&etcd, &osaka.entry_key(&etcd)));
    let (leases, written, since) = (etcd.leases(), number(), etcd.create_revision(&entry_key));
    assert_eq!(leases.len(), 2);

    let mut running = session(&at_home, target);
    at_osaka.signal("USR2");
    at_osaka.upgraded();
    eventually("an entry of the new process", || (number() > written).then_some(()));
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    assert_echo(&mut running);
    drop(running);
    assert_eq!(closed(&mut at_home)["path"], "by-osaka");
    wait_process_end(at_osaka.id());
    // An entry of the first process would expire with its lease.
    eventually("the end of the old lease", || {
        let now = etcd.leases();
        leases.iter().any(|lease| !now.contains(lease)).then_some(())
    });
    assert_eq!(etcd.create_revision(&entry_key), since, "the entry was deleted in between");
    let entry = etcd.value(&entry_key).expect("the entry exists");
    assert!(entry.contains("state: serving"), "{entry}");
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    at_home.signal("TERM");
    let events = at_home.remaining_events();
    let announcement = events.iter().filter(|event| event["event"] == "fleet_changed").find(|event| {
        let names_osaka =
            |word: &str| event[word].as_array().is_some_and(|names| names.iter().any(|name| name == "osaka"));
        names_osaka("draining") || names_osaka("left")
    });
    assert!(announcement.is_none(), "{announcement:?}");
}

#[test]
fn reload_to_another_fleet_or_none_removes_the_entry() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    // The lease outlasts the test, so that only osaka itself can delete its entry.
    let configure = |osaka: &Site| osaka.config_with_times(&etcd, "1h", "1s", "");
    let (_home, mut at_home, osaka, mut at_osaka) = pair_with(&etcd, &fleet, configure);
    let config = configure(&osaka);
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace(Fleet::SHARED, "/other/")).unwrap();
    at_osaka.signal("HUP");
    at_osaka.next(|event| event["event"] == "reloaded");
    wait_fleet_change(&mut at_home, "left", "osaka");
    let entries = || etcd.entries().into_iter().filter(|(_, value)| value.contains("\nname: osaka\n"));
    let (key, _) = eventually("the entry in the other fleet", || entries().next());
    assert!(key.starts_with("/other/"), "{key}");
    fs::write(&config, without_fleet(&text)).unwrap();
    at_osaka.signal("HUP");
    at_osaka.next(|event| event["event"] == "reloaded");
    eventually("an etcd without an entry of osaka", || entries().next().is_none().then_some(()));
}

#[test]
fn rejected_reload_without_fleet_keeps_the_entry() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let osaka = fleet.site("osaka");
    let config = osaka.config_with_times(&etcd, "1h", "1s", "");
    let mut at_osaka = osaka.run(&config);
    let entry_key = osaka.entry_key(&etcd);
    let (written, since) = (number(&etcd, &entry_key), etcd.create_revision(&entry_key));
    let occupied = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = fs::read_to_string(&config).unwrap();
    let bind = format!("[[listener]]\nkind = \"socks\"\nbind = \"{}\"\n", occupied.local_addr().unwrap());
    fs::write(&config, without_fleet(&text) + &bind).unwrap();
    at_osaka.signal("HUP");
    at_osaka.next(|event| event["event"] == "reload_rejected");
    // The rejected reload has restarted the session with etcd, which writes the entry again.
    eventually("a new entry", || (number(&etcd, &entry_key) > written).then_some(()));
    assert_eq!(etcd.create_revision(&entry_key), since, "the entry was deleted in between");
}

/// Returns the configuration of a relay without a fleet.
fn without_fleet(config: &str) -> String {
    let (before, _) = config.split_once("[fleet]").expect("[fleet] is the last table");
    before.replace("fleet = true\n", "")
}

/// Returns the sequence number of the entry.
fn number(etcd: &Etcd, entry_key: &str) -> u64 {
    let entry = etcd.value(entry_key).expect("an entry");
    let line = entry.lines().find_map(|line| line.strip_prefix("number: ")).expect("a number");
    line.parse().expect("a number")
}
