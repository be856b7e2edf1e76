use super::*;
use crate::packet::Ecn;
use crate::queue::tests::{DriveOutcome, MS, drive, packet, random, span, steady, trace_table};

const LIMIT: QueueLimit = QueueLimit::Packets(1000);
/// What the line takes for 1500 bytes.
const SERVICE: Nanos = 1_200_000;

fn codel(limit: QueueLimit, ecn: bool) -> CodelQueue {
    CodelQueue::new(CodelSettings { limit, target: span(5), interval: span(100), ecn })
}

fn run(arrivals: &[Packet], ecn: bool) -> DriveOutcome {
    drive(&mut codel(LIMIT, ecn), arrivals, |_, _, _| ())
}

fn drop_times(outcome: &DriveOutcome) -> Vec<Nanos> {
    outcome.events.dropped.iter().map(|drop| drop.packet.at).collect()
}

/// Twice what the line carries, for `number` packets.
fn overload(number: u64) -> Vec<Packet> {
    steady(number, SERVICE / 2)
}

#[test]
fn drops_begin_an_interval_after_the_delay_was_exceeded_and_come_faster_and_faster() {
    let outcome = run(&overload(1500), false);
    let times = drop_times(&outcome);
    assert!(times.len() > 40);
    // Packet k departs at k * 1.2 ms, after k * 0.6 ms: number 9 is the first that waited for 5 ms.
    let mut due = 9 * SERVICE + 100 * MS;
    for (count, time) in (1_u32..).zip(times) {
        let late = time as f64 - due as f64;
        assert!((0.0..SERVICE as f64).contains(&late), "drop {count} at {time}, due at {due}");
        due = if count == 1 { time } else { due };
        due += (100.0 * MS as f64 / f64::from(count).sqrt()) as Nanos;
    }
    assert_eq!(outcome.drops(DropCause::Early), outcome.events.dropped.len());
}

#[test]
fn short_bursts_short_delays_and_the_last_packets_are_left_alone() {
    // 80 packets at once are gone within an interval.
    let burst: Vec<Packet> = (0..80).map(|number| packet(number, 0, 1500)).collect();
    assert_eq!(run(&burst, false).events.dropped, []);
    // A standing queue of four packets is 4.8 ms.
    let standing: Vec<Packet> = (0..1000).map(|n| packet(n, n.saturating_sub(4) * SERVICE, 1500)).collect();
    assert_eq!(run(&standing, false).events.dropped, []);
    // A line of 10 kbit/s takes 1.2 s for a packet: it waits long, but with one packet behind it.
    let mut codel = codel(LIMIT, false);
    let mut ledger = StageEvents::default();
    for number in 0..20 {
        let now = number * 1200 * MS;
        codel.enqueue(packet(number, now, 1500), &mut ledger);
        codel.enqueue(packet(number, now, 14), &mut ledger);
        assert!(codel.dequeue(now + 1199 * MS, &mut ledger).is_some_and(|head| head.bytes == 1500));
        assert!(codel.dequeue(now + 1200 * MS, &mut ledger).is_some_and(|head| head.bytes == 14));
    }
    assert_eq!(ledger.dropped, []);
}

#[test]
fn a_byte_more_than_a_packet_behind_the_head_is_enough() {
    for (behind, drops) in [(1514, 0), (1515, 1)] {
        let mut codel = codel(LIMIT, false);
        let mut ledger = StageEvents::default();
        for number in 0..3 {
            codel.enqueue(packet(number, 0, behind), &mut ledger);
        }
        // The first sees two behind it, and so the excess begins; the second sees one.
        assert_eq!(codel.dequeue(5 * MS, &mut ledger).map(|head| head.number), Some(0));
        assert_eq!(codel.dequeue(105 * MS, &mut ledger).map(|head| head.number), Some(1 + drops));
        assert_eq!(ledger.dropped.len() as u64, drops);
    }
}

/// Two overloads, the second beginning `pause` after the first; the first two drops of the second.
fn second_overload(pause: Nanos) -> (u64, Nanos) {
    let (first, gap) = (overload(1500), 1500 * SERVICE / 2 + pause);
    let second =
        overload(1500).into_iter().map(|late| Packet { number: late.number + 1500, at: late.at + gap, ..late });
    let arrivals: Vec<Packet> = first.into_iter().chain(second).collect();
    let times: Vec<Nanos> = drop_times(&run(&arrivals, false)).into_iter().filter(|time| *time >= gap).collect();
    // In the first drops of the second overload the spacing is interval / sqrt(count).
    let spacing = times.windows(2).map(|pair| pair[1] - pair[0]).find(|spacing| *spacing > 0).unwrap();
    ((100.0 * MS as f64 / spacing as f64).powi(2).round() as u64, spacing)
}

#[test]
fn soon_after_a_dropping_state_its_rate_is_taken_up_again() {
    let (count, spacing) = second_overload(1200 * MS);
    assert!(count > 20, "spacing {spacing}");
    // 16 intervals later it has been forgotten.
    let (count, spacing) = second_overload(3500 * MS);
    assert_eq!(count, 1, "spacing {spacing}");
}

#[test]
fn a_new_dropping_state_begins_with_the_drops_of_the_last_one() {
    let law = CodelParams { target: 5 * MS, interval: 100 * MS, ecn: false };
    let entered = |count, last_count, drop_next, now| {
        let mut control = CodelState { count, last_count, drop_next, ..CodelState::default() };
        control.enter_dropping(&law, now);
        assert!(control.dropping && control.last_count == control.count);
        (control.count, control.drop_next - now)
    };
    assert_eq!(entered(30, 5, 1000 * MS, 1200 * MS), (25, 20 * MS));
    assert_eq!(entered(30, 5, 1000 * MS, 900 * MS), (25, 20 * MS), "the next drop was still to come");
    assert_eq!(entered(30, 5, 1000 * MS, 2600 * MS - 1), (25, 20 * MS));
    assert_eq!(entered(30, 5, 1000 * MS, 2600 * MS), (1, 100 * MS), "16 intervals later");
    assert_eq!(entered(30, 29, 1000 * MS, 1200 * MS), (1, 100 * MS), "one drop is not enough");
}

#[test]
fn a_departure_may_drop_many_packets_but_marks_one() {
    for (ecn, sent, count) in [(Ecn::NotCapable, 9, 7), (Ecn::Capable, 2, 2)] {
        let mut codel = codel(LIMIT, true);
        let mut ledger = StageEvents::default();
        for number in 0..11 {
            codel.enqueue(Packet { ecn, ..packet(number, 0, 1500) }, &mut ledger);
        }
        // The excess begins; the dropping state begins, with the next drop due at 210 ms; then drops are long overdue.
        let departures = [10 * MS, 110 * MS, 900 * MS].map(|now| codel.dequeue(now, &mut ledger).unwrap().number);
        assert_eq!((departures[2], codel.state.count), (sent, count));
        assert_eq!(ledger.dropped.len(), if ecn == Ecn::Capable { 0 } else { 7 });
    }
}

#[test]
fn capable_packets_are_marked_one_by_one_where_others_are_dropped() {
    let capable: Vec<Packet> = overload(600).into_iter().map(|p| Packet { ecn: Ecn::Capable, ..p }).collect();
    let (marked, dropped) = (run(&capable, true), run(&overload(600), true));
    assert_eq!(marked.events.dropped, []);
    let marks: Vec<Nanos> = marked.sent.iter().filter(|p| p.ecn == Ecn::Marked).map(|p| p.at).collect();
    let drops = drop_times(&dropped);
    // A drop shortens the queue and a mark does not, but the law is the same while both stay above the target.
    let both = marks.len().min(drops.len());
    assert!(both > 10);
    for (mark, drop) in marks.iter().zip(&drops) {
        assert_eq!(mark, drop);
    }
    assert_eq!(run(&capable, false).marks(), 0);
}

#[test]
fn what_does_not_fit_is_dropped_as_full() {
    let burst: Vec<Packet> = (0..12).map(|number| packet(number, 0, 1500)).collect();
    let outcome = drive(&mut codel(QueueLimit::Packets(10), true), &burst, |_, _, _| ());
    assert_eq!((outcome.drops(DropCause::Full), outcome.events.dropped[0].packet.number), (1, 11));
}

#[test]
fn the_law_rounds_down() {
    let law = CodelParams { target: 5 * MS, interval: 100 * MS, ecn: false };
    let next: Vec<Nanos> = [1, 2, 3, 4, 1000].into_iter().map(|count| law.next_drop(7, count)).collect();
    assert_eq!(next, [100_000_007, 70_710_685, 57_735_033, 50_000_007, 3_162_284]);
}

#[test]
fn an_overload_goes_as_it_once_went() {
    let mut codel = codel(QueueLimit::Bytes(60_000), true);
    let table = trace_table(&mut codel, &random(42, 2000, MS), 200, |codel| {
        format!("count {}, {}", codel.state.count, if codel.state.dropping { "dropping" } else { "not yet" })
    });
    assert_eq!(
        table,
        [
            "98 ms: 41 = 33011 B, count 0, not yet; 159 sent, 0+0+0 dropped, 0 marked",
            "201 ms: 80 = 54381 B, count 1, dropping; 311 sent, 1+0+8 dropped, 0 marked",
            "295 ms: 81 = 57354 B, count 3, dropping; 481 sent, 3+0+35 dropped, 0 marked",
            "392 ms: 85 = 59473 B, count 4, dropping; 643 sent, 3+0+69 dropped, 1 marked",
            "488 ms: 92 = 59720 B, count 7, dropping; 812 sent, 5+0+91 dropped, 2 marked",
            "583 ms: 73 = 57641 B, count 9, dropping; 986 sent, 7+0+134 dropped, 2 marked",
            "682 ms: 81 = 58289 B, count 13, dropping; 1146 sent, 10+0+163 dropped, 3 marked",
            "791 ms: 74 = 55912 B, count 17, dropping; 1328 sent, 13+0+185 dropped, 4 marked",
            "888 ms: 83 = 59629 B, count 21, dropping; 1486 sent, 17+0+214 dropped, 4 marked",
            "989 ms: 83 = 59630 B, count 26, dropping; 1657 sent, 22+0+238 dropped, 4 marked",
            "1036 ms: 0 = 0 B, count 28, not yet; 1738 sent, 24+0+238 dropped, 4 marked",
        ]
    );
}
