//! The order of checks, without bcrypt: a check ends when the test says so.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;

type Waits = Pin<Box<dyn Future<Output = Option<CheckTurn>>>>;

/// Client number `client` shows this password for this name.
fn request(client: u8, name: u8, password: u8) -> PasswordCheck {
    let mut digest = [password; 32];
    digest[0] = name;
    PasswordCheck { source: [192, 0, 2, client].into(), digest, name: [name; 32], was_verified: false }
}

fn enter(checks: &Arc<CheckQueue>, request: PasswordCheck) -> Waits {
    Box::pin(checks.enqueue(request).wait_turn())
}

fn look(waits: &mut Waits) -> Option<CheckTurn> {
    match waits.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(turn) => Some(turn.expect("not given up")),
        Poll::Pending => None,
    }
}

fn begun(waits: &mut Waits) -> Option<RunningCheck> {
    look(waits).map(|turn| match turn {
        CheckTurn::Run(running) => running,
        CheckTurn::Result(right) => panic!("told {right}"),
    })
}

/// Ends `running` with a wrong password, and so on until all are checked; the order in which they were.
fn order(mut running: RunningCheck, mut waiting: Vec<(u8, Waits)>) -> Vec<u8> {
    let mut order = Vec::new();
    while !waiting.is_empty() {
        running.finish(false);
        let mut next = waiting.iter_mut().enumerate().filter_map(|(at, (_, waits))| Some((at, begun(waits)?)));
        let (at, began) = next.next().expect("one begins");
        assert!(next.next().is_none(), "two began");
        running = began;
        order.push(waiting.remove(at).0);
    }
    order
}

#[test]
fn few_run_at_once_and_one_of_each_address() {
    let checks = Arc::new(CheckQueue::new(2));
    let mut first = enter(&checks, request(1, 1, 1));
    let mut again = enter(&checks, request(1, 1, 2));
    let mut second = enter(&checks, request(2, 1, 3));
    let mut third = enter(&checks, request(3, 1, 4));
    let (first, second) = (begun(&mut first).unwrap(), begun(&mut second).unwrap());
    assert!(begun(&mut again).is_none() && begun(&mut third).is_none());
    second.finish(false);
    let third = begun(&mut third).unwrap();
    third.finish(false);
    assert!(begun(&mut again).is_none(), "its address has one under way");
    first.finish(false);
    assert!(begun(&mut again).is_some());
}

#[test]
fn addresses_that_guess_wait_behind_new_ones() {
    let checks = Arc::new(CheckQueue::new(1));
    let first = begun(&mut enter(&checks, request(1, 1, 1))).unwrap();
    let guesses = [(2, 21), (3, 31), (2, 22), (3, 32), (1, 12)];
    let mut waiting: Vec<_> =
        guesses.iter().map(|(at, word)| (*word, enter(&checks, request(*at, 1, *word)))).collect();
    waiting.push((40, enter(&checks, request(4, 1, 40))));
    assert_eq!(order(first, waiting), [40, 21, 31, 22, 32, 12]);
    // They are remembered; and a right password makes an address a new one again.
    let first = begun(&mut enter(&checks, request(5, 1, 50))).unwrap();
    let waiting = [(2, 23), (4, 41), (6, 60)].map(|(at, word)| (word, enter(&checks, request(at, 1, word))));
    assert_eq!(order(first, waiting.into()), [60, 41, 23]);
    begun(&mut enter(&checks, request(2, 1, 99))).unwrap().finish(true);
    let first = begun(&mut enter(&checks, request(7, 1, 70))).unwrap();
    let waiting = [(4, 42), (2, 24)].map(|(at, word)| (word, enter(&checks, request(at, 1, word))));
    assert_eq!(order(first, waiting.into()), [24, 42]);
}

/// All addresses are new: then many attempts for one name do not hold up another name.
#[test]
fn names_take_turns() {
    let checks = Arc::new(CheckQueue::new(1));
    let first = begun(&mut enter(&checks, request(1, 1, 1))).unwrap();
    let mut waiting: Vec<_> = (2..7).map(|at| (at, enter(&checks, request(at, 1, at)))).collect();
    waiting.extend([(10, 2), (11, 2), (12, 3)].map(|(at, name)| (at, enter(&checks, request(at, name, at)))));
    assert_eq!(order(first, waiting), [2, 10, 12, 3, 11, 4, 5, 6]);
}

#[test]
fn a_password_that_was_right_before_comes_first() {
    let checks = Arc::new(CheckQueue::new(1));
    let first = begun(&mut enter(&checks, request(1, 1, 1))).unwrap();
    let waiting = [
        (2, enter(&checks, request(2, 1, 2))),
        (3, enter(&checks, PasswordCheck { was_verified: true, ..request(1, 1, 3) })),
    ];
    assert_eq!(order(first, waiting.into()), [3, 2]);
}

#[test]
fn the_same_user_and_password_is_checked_once() {
    let checks = Arc::new(CheckQueue::new(2));
    for right in [true, false] {
        let running = begun(&mut enter(&checks, request(1, 1, 1))).unwrap();
        let mut same: Vec<_> = [1, 1, 2].map(|at| enter(&checks, request(at, 1, 1))).into();
        assert!(same.iter_mut().all(|waits| look(waits).is_none()), "a place is free, but not for the same");
        running.finish(right);
        assert!(same.iter_mut().all(|waits| matches!(look(waits), Some(CheckTurn::Result(known)) if known == right)));
    }
}

#[test]
fn requests_that_are_dropped_leave_no_trace() {
    let checks = Arc::new(CheckQueue::new(1));
    let mut first = enter(&checks, request(1, 1, 1));
    let mut second = enter(&checks, request(2, 1, 2));
    let third = enter(&checks, request(3, 1, 3));
    let mut fourth = enter(&checks, request(4, 1, 4));
    drop(third);
    assert!(begun(&mut second).is_none());
    // The request got the right to begin, and was dropped before it read that.
    drop(first);
    let running = begun(&mut second).unwrap();
    // A check that panics has no result.
    drop(running);
    begun(&mut fourth).unwrap().finish(false);
    first = enter(&checks, request(1, 1, 5));
    assert!(begun(&mut first).is_some());
    assert!(checks.lock().waiting.is_empty());
}

#[test]
fn the_queue_has_a_bound_and_gives_up_the_last_in_order() {
    let checks = Arc::new(CheckQueue::new(1));
    let _running = begun(&mut enter(&checks, request(1, 1, 1))).unwrap();
    let numbered = |number: usize| {
        let mut request = request(2, 1, 2);
        request.digest[8..16].copy_from_slice(&number.to_le_bytes());
        request
    };
    let mut waiting: Vec<_> = (0..MAX_WAITING).map(|number| enter(&checks, numbered(number))).collect();
    let mut new = enter(&checks, request(3, 1, 3));
    assert!(look(&mut new).is_none(), "it waits");
    let mut last = waiting.pop().unwrap();
    assert!(matches!(last.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(None)));
    assert!(waiting.iter_mut().all(|waits| look(waits).is_none()));
}
