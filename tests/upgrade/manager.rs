//! What a manager like systemd hears of it (sd_notify(3)).

use crate::harness::*;
use crate::scene::*;

#[test]
fn the_manager_is_told_whose_turn_it_is() {
    let folder = Folder::new();
    let manager = Manager::new(&folder);
    let mut service = Service::start_with(&to(greeter(), ""), |command| {
        command.env("NOTIFY_SOCKET", folder.0.join("notify"));
    });
    assert_eq!(manager.told(), "READY=1");
    let running = greeted(service.relay.address());
    let before = service.upgrade();
    assert_eq!(manager.told(), format!("MAINPID={}", service.serves));
    assert_eq!(manager.told(), "READY=1");
    // The one before says nothing any more: the manager would take it for the service.
    drop(running);
    ended(before);
    signal(service.serves, "HUP");
    assert!(manager.told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(manager.told(), "READY=1");
    service.replace_program("#!/bin/sh\nexit 3\n");
    service.fails();
    let status = manager.told();
    assert!(status.starts_with("STATUS=upgrade failed") && status.contains("exit status: 3"), "{status}");
    signal(service.serves, "TERM");
    assert_eq!(manager.told(), "STOPPING=1");
    ended(service.serves);
}

/// The manager has named the first process as the one that it watches (`WATCHDOG_PID`), and then hears of another.
#[test]
fn the_watchdog_hears_of_life_before_and_after() {
    let folder = Folder::new();
    let manager = Manager::new(&folder);
    let mut service = Service::start_with(&to(greeter(), ""), |command| {
        let real = std::mem::replace(command, std::process::Command::new("sh"));
        command.args(["-c", "WATCHDOG_PID=$$ exec \"$@\"", "sh"]).arg(real.get_program()).args(real.get_args());
        std::os::unix::process::CommandExt::process_group(command, 0);
        command.env("NOTIFY_SOCKET", folder.0.join("notify")).env("WATCHDOG_USEC", "100000");
    });
    let alive = || eventually("a sign of life", || (manager.heard() == "WATCHDOG=1").then_some(()));
    alive();
    let running = greeted(service.relay.address());
    service.upgrade();
    assert_eq!(manager.told(), format!("MAINPID={}", service.serves));
    assert_eq!(manager.told(), "READY=1");
    alive();
    alive();
    drop(running);
}
