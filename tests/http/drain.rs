//! SIGTERM: idle sessions end at once, busy ones when their answer has been delivered.

use crate::harness::*;
use crate::talk::*;

/// The drain deadline is 30 seconds, longer than any test waits.
#[test]
fn an_idle_session_ends_at_once() {
    let mut scene = Scene::new();
    let (mut client, mut server) = scene.acquainted();
    scene.relay.signal("TERM");
    assert_closed(&mut client);
    assert_closed(&mut server);
    assert_eq!(scene.relay.exit_code(), Some(0));
    assert_eq!(scene.relay.closed()["end"], "finished");
    assert_eq!(scene.relay.next(|event| event["event"] == "stopped")["aborted"], 0);
}

#[test]
fn a_session_in_the_middle_of_an_answer_finishes_it() {
    let mut scene = Scene::new();
    let mut client = scene.client();
    say(&mut client, scene.get("/"));
    let mut server = scene.accept();
    Head::read(&mut server);
    say(&mut server, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nbegin");
    Head::read(&mut client);
    scene.relay.signal("TERM");
    let draining = scene.relay.next(|event| event["event"] == "draining");
    assert_eq!(draining["open"], 1);
    let body = pattern(999_995);
    say(&mut server, &body);
    assert_eq!(read_exactly(&mut client, 5), b"begin");
    assert!(read_exactly(&mut client, body.len()) == body);
    assert_closed(&mut client);
    assert_eq!(scene.relay.exit_code(), Some(0));
    assert_eq!(scene.relay.closed()["end"], "finished");
    assert_eq!(scene.request()["status"], 200);
}

/// The request has gone to the server, which has not answered yet.
#[test]
fn a_session_that_waits_for_its_answer_gets_it() {
    let mut scene = Scene::new();
    let mut client = scene.client();
    say(&mut client, scene.get("/"));
    let mut server = scene.accept();
    Head::read(&mut server);
    scene.relay.signal("TERM");
    scene.relay.next(|event| event["event"] == "draining");
    say(&mut server, OK);
    answered_ok(&mut client);
    assert_closed(&mut client);
    assert_eq!(scene.relay.exit_code(), Some(0));
    assert_eq!(scene.relay.closed()["end"], "finished");
}

/// What waits for ever is cut off at the deadline, and does not look whole.
#[test]
fn the_deadline_cuts_off() {
    let mut scene = Scene::with("[timeouts]\ndrain = \"300ms\"\n");
    let mut client = scene.client();
    say(&mut client, scene.get("/"));
    let mut server = scene.accept();
    Head::read(&mut server);
    say(&mut server, "HTTP/1.1 200 OK\r\n\r\nbegin");
    Head::read(&mut client);
    assert_eq!(read_exactly(&mut client, 5), b"begin");
    scene.relay.signal("TERM");
    assert_eq!(hear_out(&mut client), (Vec::new(), Ending::Reset));
    assert_eq!(scene.relay.exit_code(), Some(0));
    assert_eq!(scene.relay.closed()["end"], "drained");
    assert_eq!(scene.relay.next(|event| event["event"] == "stopped")["aborted"], 1);
}
