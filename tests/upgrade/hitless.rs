//! Sessions during an upgrade, and the messages to a manager like systemd (sd_notify(3)).

use super::harness::*;
use super::scene::*;

#[test]
fn downloads_go_on_byte_for_byte() {
    let mut service = Service::start(&to(downloads(), ""));
    let address = service.relay.address();
    let running: Vec<_> = (0..4).map(|_| Download::begin(address)).collect();
    let first = service.upgrade();
    let later: Vec<_> = (0..4).map(|_| Download::begin(address)).collect();
    assert_ne!(service.serves, first);
    running.into_iter().chain(later).for_each(Download::finish);
    ended(first);
    let stopped = service.relay.next(|event| event["event"] == "stopped");
    assert_eq!(stopped["aborted"], 0);
}

/// Upgrades and reloads with clients coming all the time.
#[test]
fn nobody_is_refused_or_reset() {
    let target = greeter();
    let mut service = Service::start(&to(target, ""));
    let crowd = Crowd::at(service.relay.address());
    let mut kept = greeted(service.relay.address());
    for _ in 0..3 {
        service.upgrade();
        signal(service.serves, "HUP");
        service.relay.next(|event| event["event"] == "reloaded");
    }
    talks(&mut kept);
    assert!(crowd.end() > 20, "nobody came meanwhile");
    assert_eq!(service.answers(), service.serves);
}

/// Each process has sessions, and lets them finish.
#[test]
fn one_upgrade_after_another_while_the_first_process_still_drains() {
    let mut service = Service::start(&to(downloads(), ""));
    let address = service.relay.address();
    let mut running = vec![Download::begin(address)];
    let mut before = Vec::new();
    for _ in 0..2 {
        before.push(service.upgrade());
        running.push(Download::begin(address));
    }
    assert!(before.iter().all(|process| ekiden_sys::process::start_time(*process).is_some()), "they have sessions");
    running.into_iter().for_each(Download::finish);
    before.into_iter().for_each(ended);
    serves(&service);
}

fn serves(service: &Service) {
    Download::begin(service.relay.address());
    assert_eq!(service.answers(), service.serves);
}

#[test]
fn the_command_says_who_serves_now() {
    let mut service = Service::start(&to(greeter(), ""));
    let output = service.command();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let now = service.relay.upgraded();
    assert!(said.starts_with(&format!("process {now} serves, ekiden ")), "{said}");
    assert!(said.contains(&format!("process {} finish", service.serves)), "{said}");
    assert_eq!(service.answers(), now);
    greeted(service.relay.address());
}

/// The configuration on disk is in force afterwards, as after a restart.
#[test]
fn the_new_process_reads_the_configuration() {
    let (old, new) = (greeter(), serve(|mut stream| drop(std::io::Write::write_all(&mut stream, b"newer"))));
    let mut service = Service::start(&to(old, ""));
    let mut running = greeted(service.relay.address());
    service.configure(&to(new, ""));
    service.upgrade();
    assert_eq!(read_exactly(&mut service.relay.connect(), 5), b"newer");
    talks(&mut running);
}

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
