//! As a service: what the manager is told (sd_notify(3)), and what it is told to do.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;

use std::os::unix::net::UnixDatagram;

use harness::*;

/// The socket of a manager.
struct Manager(UnixDatagram);

impl Manager {
    fn at(path: &std::path::Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    /// The next thing it is told that is not a sign of life.
    fn told(&self) -> String {
        std::iter::repeat_with(|| self.heard()).find(|said| said != "WATCHDOG=1").unwrap()
    }

    fn heard(&self) -> String {
        let mut bytes = [0; 256];
        let length = self.0.recv(&mut bytes).expect("the manager is told something");
        String::from_utf8(bytes[..length].to_vec()).unwrap().trim().to_owned()
    }
}

#[test]
fn the_manager_hears_of_the_start_of_life_of_reloads_and_of_the_end() {
    let folder = Folder::new();
    let manager = Manager::at(&folder.0.join("notify"));
    let file = folder.write("ekiden.toml", "version = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\n");
    let mut command = ekiden();
    command.args(["run", "-c"]).arg(&file).env("NOTIFY_SOCKET", folder.0.join("notify"));
    let mut relay = Relay::start(command.env("WATCHDOG_USEC", "200000"), 1);
    assert_eq!(manager.heard(), "READY=1");
    for _ in 0..3 {
        assert_eq!(manager.heard(), "WATCHDOG=1");
    }
    relay.signal("HUP");
    assert!(manager.told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(manager.told(), "READY=1");
    relay.signal("TERM");
    assert_eq!(manager.told(), "STOPPING=1");
    assert_eq!(relay.exit_code(), Some(0));
}

#[test]
fn the_unit_watches_and_cleans_up() {
    let unit = include_str!("../systemd/ekiden.service");
    let value = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("no {key}")).to_owned()
    };
    assert_eq!((value("Type"), value("WatchdogSec")), ("notify".to_owned(), "10s".to_owned()));
    for (key, subcommand) in [("ExecStart", "run"), ("ExecStopPost", "rules remove")] {
        let command = value(key);
        let words = command.strip_prefix("/usr/bin/ekiden ").unwrap();
        assert!(words.starts_with(subcommand), "{command}");
        // The options are those of the binary.
        let arguments: Vec<&str> = words.split(' ').take_while(|word| !word.starts_with('-')).collect();
        let help = ekiden().args(&arguments).arg("--help").output().unwrap();
        assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("-c, --config"), "{command}");
    }
}
