//! Sessions during an upgrade, and the messages to a service manager such as systemd (sd_notify(3)).

use super::fixture::*;
use super::harness::*;

#[test]
fn downloads_continue_unchanged_during_an_upgrade() {
    let mut service = Service::start(&config_for(downloads(), ""));
    let address = service.relay.address();
    let running: Vec<_> = (0..4).map(|_| Download::begin(address)).collect();
    let first = service.upgrade();
    let later: Vec<_> = (0..4).map(|_| Download::begin(address)).collect();
    assert_ne!(service.serving, first);
    running.into_iter().chain(later).for_each(Download::finish);
    wait_process_end(first);
    let stopped = service.relay.next(|event| event["event"] == "stopped");
    assert_eq!(stopped["aborted"], 0);
}

/// Clients connect continuously during three upgrades and three reloads.
#[test]
fn upgrades_and_reloads_refuse_and_reset_no_client() {
    let target = greeter("hello");
    let mut service = Service::start(&config_for(target, ""));
    let load = ClientLoad::at(service.relay.address());
    let mut kept = connect_greeted(service.relay.address());
    for _ in 0..3 {
        service.upgrade();
        signal(service.serving, "HUP");
        service.relay.next(|event| event["event"] == "reloaded");
        load.wait_more_clients();
    }
    assert_echo(&mut kept);
    load.end();
    assert_eq!(service.serving_process(), service.serving);
}

/// Each old process has open sessions, and ends after they have finished.
#[test]
fn upgrades_repeat_while_earlier_processes_drain() {
    let mut service = Service::start(&config_for(downloads(), ""));
    let address = service.relay.address();
    let mut running = vec![Download::begin(address)];
    let mut before = Vec::new();
    for _ in 0..2 {
        before.push(service.upgrade());
        running.push(Download::begin(address));
    }
    assert!(before.iter().all(|process| ekiden_sys::process::start_time(*process).is_some()), "a process has ended");
    running.into_iter().for_each(Download::finish);
    before.into_iter().for_each(wait_process_end);
    check_serving(&service);
}

fn check_serving(service: &Service) {
    Download::begin(service.relay.address());
    assert_eq!(service.serving_process(), service.serving);
}

#[test]
fn upgrade_command_prints_the_serving_process() {
    let mut service = Service::start(&config_for(greeter("hello"), ""));
    let output = service.command();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let now = service.relay.upgraded();
    assert!(stdout.starts_with(&format!("process {now} serves new sessions with ekiden ")), "{stdout}");
    assert!(stdout.contains(&format!("process {} finish", service.serving)), "{stdout}");
    assert_eq!(service.serving_process(), now);
    connect_greeted(service.relay.address());
}

/// Bug: the command waited for an answer at the old address, and then reported that the old process gave no result.
#[test]
fn upgrade_command_names_a_changed_admin_address() {
    let folder = Folder::new();
    let (old, new) = (folder.0.join("old.sock"), folder.0.join("new.sock"));
    let config = |admin: &std::path::Path| {
        config_for(greeter("hello"), &format!("[admin]\nbind = \"unix:{}\"\n", admin.display()))
    };
    let mut relay = Relay::start_with_admin(&mut run_command(&folder, &config(&old)), 1, old.clone());
    let mut running = connect_greeted(relay.address());
    folder.write("ekiden.toml", config(&new));
    let output = ekiden().args(["upgrade", "--admin", &format!("unix:{}", old.display())]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(&format!("unix:{} any more: if [admin] has changed", old.display())), "{stderr}");
    relay.upgraded();
    assert_echo(&mut running);
}

/// The configuration file applies after an upgrade, as after a restart.
#[test]
fn the_new_process_reads_the_configuration() {
    let (old, new) = (greeter("hello"), serve(|mut stream| drop(std::io::Write::write_all(&mut stream, b"newer"))));
    let mut service = Service::start(&config_for(old, ""));
    let mut running = connect_greeted(service.relay.address());
    service.configure(&config_for(new, ""));
    service.upgrade();
    assert_eq!(read_exactly(&mut service.relay.connect(), 5), b"newer");
    assert_echo(&mut running);
}

#[test]
fn service_manager_is_notified_of_the_main_process() {
    let folder = Folder::new();
    let manager = Manager::new(&folder);
    let mut service = Service::start_with(&config_for(greeter("hello"), ""), |command| {
        command.env("NOTIFY_SOCKET", folder.0.join("notify"));
    });
    assert_eq!(manager.next_notification(), "READY=1");
    let running = connect_greeted(service.relay.address());
    let before = service.upgrade();
    assert_eq!(manager.next_notification(), format!("MAINPID={}", service.serving));
    assert_eq!(manager.next_notification(), "READY=1");
    // The old process must send no more messages: the manager would attribute them to the service.
    drop(running);
    wait_process_end(before);
    signal(service.serving, "HUP");
    assert!(manager.next_notification().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(manager.next_notification(), "READY=1");
    service.replace_program("#!/bin/sh\nexit 3\n");
    service.upgrade_expecting_failure();
    let status = manager.next_notification();
    assert!(status.starts_with("STATUS=upgrade failed") && status.contains("exit status: 3"), "{status}");
    signal(service.serving, "TERM");
    assert_eq!(manager.next_notification(), "STOPPING=1");
    wait_process_end(service.serving);
}

/// The manager expects watchdog messages from the first process (`WATCHDOG_PID`), and is notified of the new process by
/// `MAINPID`.
#[test]
fn watchdog_messages_continue_after_an_upgrade() {
    let folder = Folder::new();
    let manager = Manager::new(&folder);
    let mut service = Service::start_with(&config_for(greeter("hello"), ""), |command| {
        let real = std::mem::replace(command, std::process::Command::new("sh"));
        command.args(["-c", "WATCHDOG_PID=$$ exec \"$@\"", "sh"]).arg(real.get_program()).args(real.get_args());
        std::os::unix::process::CommandExt::process_group(command, 0);
        command.env("NOTIFY_SOCKET", folder.0.join("notify")).env("WATCHDOG_USEC", "100000");
    });
    let wait_alive = || eventually("a watchdog message", || (manager.next_message() == "WATCHDOG=1").then_some(()));
    wait_alive();
    let before = service.upgrade();
    assert_eq!(manager.next_notification(), format!("MAINPID={}", service.serving));
    assert_eq!(manager.next_notification(), "READY=1");
    // The old process has ended, so all its messages precede this notification of the new process.
    wait_process_end(before);
    signal(service.serving, "HUP");
    assert!(manager.next_notification().starts_with("RELOADING=1\n"));
    wait_alive();
    wait_alive();
}
