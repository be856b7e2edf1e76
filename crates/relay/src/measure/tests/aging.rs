//! What becomes of what is known as time passes, and how long somebody is left in peace.

use super::*;

/// The same book so much later.
fn later(book: &Book, by: u64) -> Book {
    let older = Book::new(Instant::now().checked_sub(book.now() + Duration::from_secs(by)).unwrap());
    std::mem::swap(&mut *older.pages(), &mut *book.pages());
    older
}

const RELAY: Place = Place::Relay(PublicKey([1; 32]));
const LOOK: Duration = Duration::from_secs(12);

#[test]
fn nobody_looks_where_somebody_has_looked_or_sessions_tell() {
    let book = book();
    assert!(book.needs_look(RELAY, LOOK), "nothing is known");
    book.note(RELAY, None, (&sample(0), &sample(0)), 1000);
    assert!(book.needs_look(RELAY, LOOK) && !book.is_busy(RELAY), "a few bytes say little of a rate");
    book.note_look(RELAY, true, (&sample(0), &sample(0)));
    assert!(!book.needs_look(RELAY, LOOK), "just looked");
    let book = later(&book, 13);
    assert!(book.needs_look(RELAY, LOOK));
    book.note(RELAY, None, (&sample(0), &sample(0)), 100_000);
    assert!(!book.needs_look(RELAY, LOOK) && book.is_busy(RELAY) && book.estimates()[0].busy);
    let book = later(&book, 11);
    assert!(book.needs_look(RELAY, LOOK) && !book.is_busy(RELAY) && !book.estimates()[0].busy, "it is over");
}

#[test]
fn networks_are_asked_for_while_own_sessions_go_there() {
    let book = book();
    book.note(Place::Targets(prefix(1)), None, (&sample(0), &sample(0)), 0);
    book.note(Place::Targets(prefix(2)), Some(key(1)), (&sample(0), &sample(0)), 0);
    assert_eq!(book.wanted(None).0, [prefix(1)], "where other relays' sessions go is their affair");
    let book = later(&book, 590);
    book.wants(prefix(3));
    assert_eq!(book.wanted(None).0, [prefix(1), prefix(3)]);
    assert_eq!(later(&book, 11).wanted(None).0, [prefix(3)]);
}

#[test]
fn a_network_is_looked_at_again_after_a_while() {
    let book = book();
    let target = "192.0.2.1:443".parse().unwrap();
    assert!(book.look(key(1), target));
    assert_eq!(book.take_looks(&key(1)), [target]);
    let book = later(&book, 299);
    assert!(!book.look(key(1), target));
    assert!(later(&book, 2).look(key(1), target));
}

#[test]
fn what_is_old_is_told_as_old_and_taken_as_old() {
    let (book, mut heard) = (book(), Heard::default());
    book.note(RELAY, None, (&sample(0), &sample(0)), 0);
    let book = later(&book, 100);
    let ask = Ask { neighbours: true, prefixes: Vec::new() };
    let told = book.answer(&ask, key(9), &mut heard);
    assert!(told[0].sending.age >= Duration::from_secs(100) && told[0].receiving.age >= Duration::from_secs(100));
    book.hear(key(2), &told);
    let (of_us, of_them) = (&book.estimates()[0], &book.estimates()[1]);
    assert!(of_them.told_by == Some(key(2)) && of_them.sending.age_seconds >= of_us.sending.age_seconds - 0.1);
}

#[test]
fn only_what_is_new_is_written_and_counts_as_word_of_somebody() {
    let book = book();
    book.note(RELAY, None, (&sample(0), &sample(0)), 0);
    book.hear(key(2), &[says(Subject::Relay(key(3)), 0.0)]);
    assert!(book.news(Duration::ZERO).len() == 1 && book.is_told_by(&key(2), Duration::ZERO));
    let book = later(&book, 10);
    let since = book.now() - Duration::from_secs(5);
    assert!(book.news(since).is_empty() && !book.is_told_by(&key(2), since));
    book.note(Place::Relay(key(4)), None, (&sample(0), &sample(0)), 0);
    assert_eq!(book.news(since).iter().map(|(place, _)| *place).collect::<Vec<_>>(), [Place::Relay(key(4))]);
}

/// What an hour usually is, where so many weeks tell the same.
fn usual(rate: f64) -> Usual {
    Usual { rtt: Some(RTT.as_secs_f64()), loss: Some(0.0), rate: Some(rate), weeks: 4 }
}

#[test]
fn what_was_measured_in_a_quiet_hour_is_brought_into_the_busy_one() {
    let ((config, _), book) = (config(), book());
    book.note(Place::Targets(prefix(1)), None, (&sample(0), &sample(0)), 0);
    let rate = |book: &Book, number: u8| {
        let known = book.map(&config, None).unwrap().last(HERE, prefix(number), Direction::Down)?;
        Some((known.section.rate() / 1e5).round() / 10.0)
    };
    let book = later(&book, 100);
    assert_eq!(rate(&book, 1), Some(1.0), "as measured, in MB/s");
    let hour = |number: u8, rate: f64| ((Place::Targets(prefix(number)), Way::Receiving), usual(rate));
    let hours = |since| Expected {
        now: [hour(1, 0.5e6), hour(2, 3e6)].into(),
        before: [hour(1, 2e6)].into(),
        since: Some(book.now().saturating_sub(Duration::from_secs(since))),
    };
    book.expects(hours(50));
    assert!(rate(&book, 1).is_some_and(|rate| rate < 0.5), "a quarter of it, {:?}", rate(&book, 1));
    assert_eq!(rate(&book, 2), Some(3.0), "only the history knows that one");
    book.expects(hours(200));
    assert!(rate(&book, 1).is_some_and(|rate| rate > 0.7), "it was measured in this hour: {:?}", rate(&book, 1));
}
