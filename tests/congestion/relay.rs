//! Relays whose profiles name a congestion control.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;

use serde_json::Value;

use crate::harness::{
    Folder, Relay, accept, connect, eventually, read_exactly, relay_with_connection, server, signal, wait_process_end,
};
use crate::mount_namespace::{Namespace, UNPRIVILEGED};
use crate::name_lock::{RegistrationLock, wait_absent};

/// A relay to a server of the test, with one profile for both sections.
struct Fixture {
    relay: Relay,
    origin: TcpListener,
    address: SocketAddr,
    folder: Folder,
}

impl Fixture {
    fn new(namespace: &Namespace, through: &str, profile: &str) -> Self {
        let (origin, address) = server();
        let folder = Folder::new();
        let file = configuration(&folder, address, profile);
        let mut command = namespace.command(through, &format!("run -c {}", file.display()));
        Self { relay: Relay::start(&mut command, 1), origin, address, folder }
    }

    /// Waits for the next event about congestion controls.
    fn event(&mut self) -> Value {
        self.relay.next(|event| event["event"] == "congestion")
    }

    /// Waits for the settings that the relay reports for the listener's profile.
    fn settings(&mut self) -> Vec<String> {
        let applied = self.relay.next(|event| event["event"] == "profile_applied");
        applied["settings"].as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    }

    /// Opens a session. Returns both ends: client and server.
    fn session(&self) -> (TcpStream, TcpStream) {
        let mut client = connect(self.relay.address());
        client.write_all(b"hello").unwrap();
        let mut server = accept(&self.origin);
        assert_eq!(read_exactly(&mut server, 5), b"hello");
        (client, server)
    }

    /// Returns the status of the newest session's two sections: the client's and the server's.
    fn sections(&self) -> [Value; 2] {
        let sessions = self.relay.sessions();
        let session = sessions.last().unwrap();
        [session["down"].clone(), session["up"].clone()]
    }

    fn reload(&mut self, profile: &str) {
        configuration(&self.folder, self.address, profile);
        self.relay.signal("HUP");
        self.relay.next(|event| event["event"] == "reloaded");
    }
}

fn configuration(folder: &Folder, origin: SocketAddr, profile: &str) -> PathBuf {
    let listener =
        format!("bind = \"127.0.0.1:0\"\nname = \"door\"\nkind = \"tcp\"\ntarget = \"{origin}\"\nprofile = \"p\"");
    let route = "path = [\"direct\"]\nprofile = \"p\"";
    let text = format!("version = 1\n[profile.p]\n{profile}\n[[listener]]\n{listener}\n[[route]]\n{route}\n");
    folder.write("relay.toml", text)
}

/// The paths of tests are short. If the system's default control is neither cubic nor reno, and may pace, reno replaces
/// it in both sections.
#[test]
fn sections_of_short_paths_do_not_pace() {
    let (mut relay, _client, _server) = relay_with_connection();
    let default = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let expected = if matches!(default.trim(), "cubic" | "reno") { default.trim() } else { "reno" };
    let session = relay.sessions().pop().unwrap();
    for side in ["down", "up"] {
        assert_eq!(session[side]["congestion"], expected, "{session}");
    }
    let applied = relay.next(|event| event["event"] == "profile_applied");
    assert_eq!(applied["profile"], "lan");
    assert!(applied["settings"].as_array().unwrap().contains(&"congestion = auto: applied".into()), "{applied}");
}

#[test]
fn profile_loads_its_control_until_the_relay_ends() {
    let Some(lock) = RegistrationLock::acquire_linked() else { return };
    let namespace = Namespace::with_script("umount /sys/fs/bpf 2>/dev/null; true");
    let mut fixture = Fixture::new(&namespace, "", &format!("congestion = {:?}", lock.name));
    let event = fixture.event();
    assert_eq!((&event["name"], &event["in_use"]), (&lock.name.into(), &lock.name.into()), "{event}");
    assert_eq!(event["from"], "loaded by this relay");
    assert!(fixture.settings().contains(&format!("congestion = {}: applied", lock.name)));
    let _session = fixture.session();
    for section in fixture.sections() {
        assert_eq!(section["congestion"], lock.name, "{section}");
        assert!(section["window"].as_u64().unwrap() > 0, "{section}");
    }
    assert_eq!(namespace.listed(lock.name)["holders"], serde_json::json!([fixture.relay.id()]));
    let table = namespace.ekiden(&format!("status --admin unix:{}", fixture.relay.admin.display())).expect_success();
    assert!(table.contains("loaded by this relay") && table.contains("QUEUED"), "{table}");
    fixture.relay.signal("KILL");
    wait_absent(lock.name);
}

/// The first process loads the control. With CAP_SYS_ADMIN the new process keeps this registration; without, the new
/// process loads the control again.
#[test]
fn control_survives_an_upgrade() {
    let Some(lock) = RegistrationLock::acquire_linked() else { return };
    for may_keep in [true, false] {
        let namespace = Namespace::with_script("umount /sys/fs/bpf 2>/dev/null; true");
        let through = if may_keep { "" } else { "setpriv --bounding-set -sys_admin --inh-caps -sys_admin --" };
        let mut fixture = Fixture::new(&namespace, through, &format!("congestion = {:?}", lock.name));
        let loaded = |event: &Value| event["event"] == "congestion" && event["from"] == "loaded by this relay";
        fixture.relay.next(loaded);
        fixture.relay.signal("USR2");
        let now = fixture.relay.upgraded();
        wait_process_end(fixture.relay.id());
        if !may_keep {
            fixture.relay.next(loaded);
        }
        eventually("the new process as the only holder", || {
            (namespace.listed(lock.name)["holders"] == serde_json::json!([now])).then_some(())
        });
        let _session = fixture.session();
        for section in fixture.sections() {
            assert_eq!(section["congestion"], lock.name, "{section}");
        }
        signal(now, "KILL");
        wait_absent(lock.name);
    }
}

#[test]
fn unprivileged_relay_uses_and_reports_a_replacement() {
    let Some(lock) = RegistrationLock::acquire() else { return };
    let namespace = Namespace::new();
    let mut fixture = Fixture::new(&namespace, UNPRIVILEGED, &format!("congestion = {:?}", lock.name));
    let event = fixture.event();
    let (in_use, why) = (event["in_use"].as_str().unwrap().to_owned(), event["why"].as_str().unwrap());
    assert_ne!(in_use, lock.name);
    assert!(why.contains("CAP_BPF") && why.contains("AmbientCapabilities"), "{why}");
    let setting = format!("congestion = {}: ", lock.name);
    let settings = fixture.settings();
    let reported = settings.iter().find_map(|one| one.strip_prefix(&setting)).unwrap();
    assert!(reported.starts_with("clamped(") || reported.starts_with("unsupported("), "{reported}");
    let _session = fixture.session();
    for section in fixture.sections() {
        assert_eq!(section["congestion"], in_use.as_str(), "{section}");
    }
    let answer: Value = serde_json::from_str(&fixture.relay.ask("/api/sessions")).unwrap();
    assert_eq!(answer["congestion"][0]["in_use"], in_use.as_str(), "{answer}");
    assert_eq!(answer["congestion"][0]["why"], event["why"]);
}

/// A relay without privileges can use a control that an administrator has loaded, and read the telemetry of its own
/// connections.
#[test]
fn unprivileged_relay_uses_a_loaded_control_and_its_telemetry() {
    let Some(_lock) = RegistrationLock::acquire_named("ctcp") else { return };
    let namespace = Namespace::new();
    namespace.ekiden("cc load ctcp").expect_success();
    let mut fixture = Fixture::new(&namespace, UNPRIVILEGED, "congestion = \"ctcp\"\nctcp_gamma = 12");
    let event = fixture.event();
    assert_eq!((&event["in_use"], &event["from"]), (&"ctcp".into(), &"ekiden cc load".into()), "{event}");
    let settings = fixture.settings();
    let gamma = settings.iter().find(|one| one.starts_with("ctcp_gamma")).unwrap();
    assert!(gamma.contains("unsupported") && gamma.contains("chmod g+w"), "{gamma}");
    wait_gamma(&fixture, 30);
}

#[test]
fn parameters_reach_the_connections_of_both_sides() {
    let Some(_lock) = RegistrationLock::acquire_named("ctcp") else { return };
    let namespace = Namespace::new();
    let mut fixture = Fixture::new(&namespace, "", "congestion = \"ctcp\"\nctcp_gamma = 12");
    let settings = fixture.settings();
    assert!(settings.contains(&"ctcp_gamma = 12: applied".to_owned()), "{settings:?}");
    wait_gamma(&fixture, 12);
}

/// Sends in both directions until the congestion controls of both sections report this gamma.
fn wait_gamma(fixture: &Fixture, gamma: u64) {
    let (mut client, mut server) = fixture.session();
    let is_reported = |section: &Value| section["told"]["gamma"].as_u64() == Some(gamma);
    eventually(&format!("telemetry with gamma = {gamma}"), || {
        transfer(&mut client, &mut server);
        transfer(&mut server, &mut client);
        fixture.sections().iter().all(is_reported).then_some(())
    });
}

/// Transfers fewer bytes than the socket buffers hold, so that one thread can write all of them and then read.
fn transfer(from: &mut TcpStream, to: &mut TcpStream) {
    from.write_all(&[1; 20_000]).unwrap();
    read_exactly(to, 20_000);
}

#[test]
fn reload_loads_new_controls_and_releases_unused_controls() {
    let Some(lock) = RegistrationLock::acquire() else { return };
    let namespace = Namespace::new();
    let mut fixture = Fixture::new(&namespace, "", "congestion = \"reno\"");
    assert_eq!(namespace.listed(lock.name)["origin"], "not_loaded");
    fixture.reload(&format!("congestion = {:?}", lock.name));
    assert_eq!(fixture.event()["from"], "loaded by this relay");
    let session = fixture.session();
    for section in fixture.sections() {
        assert_eq!(section["congestion"], lock.name, "accepted after the reload: {section}");
    }
    fixture.reload("congestion = \"reno\"");
    drop(session);
    wait_absent(lock.name);
    let _session = fixture.session();
    eventually("a session with the last configuration", || {
        fixture.sections().iter().all(|section| section["congestion"] == "reno").then_some(())
    });
}

/// The listening socket stays open over a reload, and accepted sections inherit its congestion control.
#[test]
fn reload_without_the_congestion_control_restores_the_default() {
    let default = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    let default = default.trim();
    let (named, on_short_paths) = if default == "cubic" { ("reno", "cubic") } else { ("cubic", "reno") };
    let (named_setting, (origin, address), folder) = (format!("congestion = {named:?}"), server(), Folder::new());
    let file = configuration(&folder, address, &named_setting);
    let mut fixture = Fixture { relay: Relay::run(&["-c", file.to_str().unwrap()], 1), origin, address, folder };
    assert_eq!(fixture.settings(), [format!("congestion = {named}: applied")]);
    for (profile, expected) in [("", default), ("congestion = \"auto\"", on_short_paths)] {
        fixture.reload(profile);
        let session = fixture.session();
        assert_eq!(fixture.sections()[0]["congestion"], expected, "{profile}");
        drop(session);
        fixture.relay.closed();
        fixture.reload(&named_setting);
    }
}
