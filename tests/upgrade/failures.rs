//! New processes that fail to start: the old process continues to serve, and reports the cause.

use crate::fixture::*;
use crate::harness::*;

/// Checks that two upgrades fail with an error that contains `words` and without effect on sessions, and that an
/// upgrade succeeds after `repair`.
fn check_failure_and_recovery(service: &mut Service, words: &[&str], repair: impl FnOnce(&Service)) {
    let address = service.relay.address();
    let mut running = connect_greeted(address);
    let load = ClientLoad::at(address);
    for _ in 0..2 {
        let (_, why) = service.upgrade_expecting_failure();
        assert!(words.iter().all(|word| why.contains(word)), "{why}");
        assert_echo(&mut running);
        assert_eq!(service.serving_process(), service.serving);
    }
    repair(service);
    let before = service.upgrade();
    assert_echo(&mut running);
    drop(running);
    load.end();
    wait_process_end(before);
}

#[test]
fn upgrade_fails_if_the_new_program_exits_at_once() {
    let mut service = Service::start(&config_for(greeter("hello"), ""));
    service.replace_program("#!/bin/sh\nexit 3\n");
    check_failure_and_recovery(&mut service, &["exited at once", "exit status: 3"], Service::restore_program);
}

#[test]
fn upgrade_fails_if_the_program_cannot_be_executed() {
    let mut service = Service::start(&config_for(greeter("hello"), ""));
    service.replace_program("#!/nonexistent/interpreter\n");
    check_failure_and_recovery(&mut service, &["cannot start", "No such file"], Service::restore_program);
}

#[test]
fn upgrade_times_out_if_the_new_program_hangs() {
    let mut service = Service::start(&config_for(greeter("hello"), "[timeouts]\nupgrade = \"1500ms\""));
    let proof = service.relay.admin.with_extension("pid");
    service.replace_program(&format!("#!/bin/sh\necho $$ > {}\nexec sleep 1000\n", proof.display()));
    // On a busy machine, the upgrade may time out before the script has written its PID.
    let hung: u32 = eventually("a script that runs before the timeout", || {
        let (_, why) = service.upgrade_expecting_failure();
        assert!(why.contains("1.5s") && why.contains("timeouts.upgrade"), "{why}");
        std::fs::read_to_string(&proof).ok()?.strip_suffix('\n')?.parse().ok()
    });
    std::fs::remove_file(&proof).unwrap();
    wait_process_end(hung);
    service.restore_program();
    service.configure(&config_for(greeter("hello"), "[timeouts]\nupgrade = \"20s\""));
    signal(service.serving, "HUP");
    service.relay.next(|event| event["event"] == "reloaded");
    service.upgrade();
    connect_greeted(service.relay.address());
}

#[test]
fn upgrade_fails_on_an_invalid_configuration() {
    let target = greeter("hello");
    let mut service = Service::start(&config_for(target, ""));
    service.configure("version = 1\nfarward = []\n[[listener]]\nbind = \"nowhere\"\n");
    let repair = |service: &Service| service.configure(&config_for(target, ""));
    check_failure_and_recovery(&mut service, &["farward", "listener[1].bind"], repair);
}

/// The upgrade fails late: the new process has started, and has received the sockets.
#[test]
fn upgrade_fails_if_a_port_is_in_use() {
    let (target, (_taken, address)) = (greeter("hello"), server());
    let mut service = Service::start(&config_for(target, ""));
    let more = format!("[[listener]]\nname = \"other\"\nbind = \"{address}\"\n");
    service.configure(&(config_for(target, "") + &more));
    let repair = |service: &Service| service.configure(&config_for(target, ""));
    check_failure_and_recovery(&mut service, &["listener other cannot listen", "another program"], repair);
}

/// The new process can have 9 descriptors at most. The stage of the start that fails depends on the number of inherited
/// descriptors: an early stage reports to standard error, a later stage to the old process.
#[test]
fn upgrade_fails_if_descriptors_do_not_suffice() {
    let (mut service, folder) = (Service::start(&config_for(greeter("hello"), "")), Folder::new());
    let (real, errors) = (env!("CARGO_BIN_EXE_ekiden"), folder.0.join("errors"));
    let script = format!("#!/bin/sh\nexec 2> {}\nulimit -n 9\nexec {real} \"$@\"\n", errors.display());
    service.replace_program(&script);
    let (_, why) = service.upgrade_expecting_failure();
    let report = format!("{why}\n{}", std::fs::read_to_string(errors).unwrap());
    assert!(report.contains("Too many open files"), "{report}");
    assert_eq!(service.serving_process(), service.serving);
    connect_greeted(service.relay.address());
    service.restore_program();
    service.upgrade();
    connect_greeted(service.relay.address());
}

#[test]
fn upgrade_command_without_a_relay_fails() {
    let output = ekiden().args(["upgrade", "--admin", "unix:/nonexistent/ekiden.sock"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("no relay answers"), "{stderr}");
}
