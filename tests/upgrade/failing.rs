//! New processes that do not come to serve: the one before goes on, and says why.

use crate::harness::*;
use crate::scene::*;

/// The upgrade fails with these words, without effect on sessions; once the cause is removed, it works.
fn fails_then_works(service: &mut Service, words: &[&str], put_right: impl FnOnce(&Service)) {
    let address = service.relay.address();
    let mut running = greeted(address);
    let crowd = Crowd::at(address);
    for _ in 0..2 {
        let (_, why) = service.fails();
        assert!(words.iter().all(|word| why.contains(word)), "{why}");
        talks(&mut running);
        assert_eq!(service.answers(), service.serves);
    }
    put_right(service);
    let before = service.upgrade();
    talks(&mut running);
    drop(running);
    crowd.end();
    ended(before);
}

#[test]
fn a_program_that_ends_at_once() {
    let mut service = Service::start(&to(greeter(), ""));
    service.replace_program("#!/bin/sh\nexit 3\n");
    fails_then_works(&mut service, &["exited at once", "exit status: 3"], Service::restore_program);
}

#[test]
fn a_program_that_is_none() {
    let mut service = Service::start(&to(greeter(), ""));
    service.replace_program("#!/nonexistent/interpreter\n");
    fails_then_works(&mut service, &["cannot be started", "No such file"], Service::restore_program);
}

#[test]
fn a_program_that_hangs() {
    let mut service = Service::start(&to(greeter(), "[timeouts]\nupgrade = \"1500ms\""));
    let proof = service.relay.admin.with_extension("pid");
    service.replace_program(&format!("#!/bin/sh\necho $$ > {}\nexec sleep 1000\n", proof.display()));
    let (_, why) = service.fails();
    assert!(why.contains("1.5s") && why.contains("timeouts.upgrade"), "{why}");
    let hung = std::fs::read_to_string(&proof).unwrap();
    std::fs::remove_file(&proof).unwrap();
    ended(hung.trim().parse().unwrap());
    service.restore_program();
    service.configure(&to(greeter(), "[timeouts]\nupgrade = \"20s\""));
    signal(service.serves, "HUP");
    service.relay.next(|event| event["event"] == "reloaded");
    service.upgrade();
    greeted(service.relay.address());
}

#[test]
fn a_broken_configuration() {
    let target = greeter();
    let mut service = Service::start(&to(target, ""));
    service.configure("version = 1\nfarward = []\n[[listener]]\nbind = \"nowhere\"\n");
    let put_right = |service: &Service| service.configure(&to(target, ""));
    fails_then_works(&mut service, &["farward", "listener[1].bind"], put_right);
}

/// It has begun by then, and has the sockets.
#[test]
fn a_port_that_somebody_else_has() {
    let (target, (_taken, address)) = (greeter(), server());
    let mut service = Service::start(&to(target, ""));
    let more = format!("[[listener]]\nname = \"other\"\nbind = \"{address}\"\n");
    service.configure(&(to(target, "") + &more));
    let put_right = |service: &Service| service.configure(&to(target, ""));
    fails_then_works(&mut service, &["listener other cannot listen", "another program"], put_right);
}

/// The real program, with too few descriptors for the handover.
#[test]
fn a_process_that_cannot_take_it_all() {
    let mut service = Service::start(&to(greeter(), ""));
    let real = env!("CARGO_BIN_EXE_ekiden");
    service.replace_program(&format!("#!/bin/sh\nulimit -n 9\nexec {real} \"$@\"\n"));
    let (_, why) = service.fails();
    assert!(!why.is_empty());
    greeted(service.relay.address());
    service.restore_program();
    service.upgrade();
    greeted(service.relay.address());
}

#[test]
fn without_a_relay_the_command_says_so() {
    let output = ekiden().args(["upgrade", "--admin", "unix:/nonexistent/ekiden.sock"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no relay answers"), "{said}");
}
