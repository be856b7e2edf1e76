use super::*;
use crate::aqm::{Backlog, dice};

const LINE: u64 = 100_000_000;
const ROOM: QueueLimit = QueueLimit { limit: 10_000, in_bytes: 0 };

/// A law, its table, and a line of 100 Mbit/s with what waits for it.
struct Queue {
    params: AutoParams,
    state: AutoState,
    sets: Vec<SlotSet>,
    waiting: f64,
    now: u64,
}

impl Queue {
    fn new(params: AutoParams) -> Self {
        Self {
            params,
            state: AutoState::default(),
            sets: vec![SlotSet::default(); params.sets()],
            waiting: 0.0,
            now: 0,
        }
    }

    /// A packet of 1500 bytes arrives, `after` nanoseconds after the last.
    fn arrive(&mut self, flow: u32, after: u64, capable: bool) -> Verdict {
        self.now += after;
        self.waiting = (self.waiting - after as f64 * LINE as f64 / 8e9).max(0.0);
        let waiting = Backlog { bytes: self.waiting as u64, packets: (self.waiting / 1500.0) as u64 };
        let capable = u32::from(capable);
        let arrival = ArrivingPacket {
            now: self.now,
            backlog: waiting,
            flow,
            bytes: 1500,
            ecn_capable: capable,
            ..ArrivingPacket::default()
        };
        let verdict = judge_arrival(&self.params, &mut self.state, &mut self.sets, &arrival);
        self.waiting += if matches!(verdict, Verdict::Drop(_)) { 0.0 } else { 1500.0 };
        verdict
    }
}

fn params(ecn: bool) -> AutoParams {
    AutoParams::new(ROOM, 5_000_000, ecn, Some(LINE), 1024)
}

/// What of ten connections' packets gets in within so many seconds, if the first sends five times what the others do, and
/// all together a third more than the line takes: a fourteenth of 11,111 packets a second each of the others, so that of
/// the line's 8333 a second 1190 are left for the first.
fn shares(queue: &mut Queue, seconds: u64, capable: bool) -> ([u64; 10], u64) {
    let (mut let_in, mut marked) = ([0; 10], 0);
    let end = queue.now + seconds * 1_000_000_000;
    let mut number = 0_u64;
    while queue.now < end {
        number += 1;
        let flow = dice::random_bits(3, number) % 14;
        let flow = if flow > 9 { 0 } else { flow };
        match queue.arrive(flow as u32 * 1000, 90_000, capable) {
            Verdict::Drop(_) => continue,
            Verdict::Mark => marked += 1,
            Verdict::Pass => (),
        }
        let_in[flow as usize] += 1;
    }
    (let_in, marked)
}

#[test]
fn who_does_not_answer_is_policed_to_what_is_left() {
    let mut queue = Queue::new(params(false));
    shares(&mut queue, 10, false);
    let (let_in, _) = shares(&mut queue, 10, false);
    assert!((11_000..12_500).contains(&let_in[0]), "{let_in:?}");
    assert!(let_in.iter().sum::<u64>() > 82_000, "the line is used: {let_in:?}");
}

#[test]
fn capable_packets_are_marked_until_marks_prove_useless() {
    let mut queue = Queue::new(params(true));
    let (_, marked) = shares(&mut queue, 10, true);
    let (let_in, later) = shares(&mut queue, 10, true);
    assert!(marked > 5, "{marked} were marked");
    assert!(later * 20 < let_in.iter().sum::<u64>(), "{later} were marked, when it is drops that help: {let_in:?}");
    assert!(let_in[0] < 12_500, "{let_in:?}");
}

#[test]
fn a_sparse_connection_is_never_hit() {
    let mut queue = Queue::new(params(false));
    let mut sent = 0;
    for number in 0..200_000_u64 {
        if number % 100 == 0 {
            sent += 1;
            assert_eq!(queue.arrive(7, 0, false), Verdict::Pass, "packet {sent}");
        }
        queue.arrive(1000 * (1 + number as u32 % 5), 100_000, false);
    }
}

#[test]
fn nothing_is_hit_while_little_waits_and_nothing_fits_into_a_full_queue() {
    let mut queue = Queue::new(params(false));
    for number in 0..20_000 {
        assert_eq!(queue.arrive(number % 3, 121_000, false), Verdict::Pass);
    }
    queue.waiting = 15_000_000.0;
    assert_eq!(queue.arrive(99, 0, false), Verdict::Drop(DropReason::Full));
}

#[test]
fn a_small_table_makes_strangers_one_connection() {
    let mut queue = Queue::new(AutoParams::new(ROOM, 5_000_000, false, Some(LINE), 1));
    assert_eq!(queue.sets.len(), 1);
    let dropped = (0..100_000_u32)
        .filter(|flow| matches!(queue.arrive(flow * 2, 90_000, false), Verdict::Drop(DropReason::Early)));
    assert!(dropped.count() > 10_000);
}

/// A mirror of this file has to come to the same.
#[test]
fn decisions_are_what_they_always_were() {
    let mut queue = Queue::new(params(true));
    let (let_in, marked) = shares(&mut queue, 5, true);
    assert_eq!((let_in, marked), ([7277, 3816, 3807, 3846, 3825, 3854, 3801, 3912, 3834, 3862], 57));
    assert_eq!(std::mem::size_of::<FlowSlot>(), 72);
    assert_eq!(std::mem::size_of::<SlotSet>(), 608);
}

#[test]
fn extremes_neither_overflow_nor_divide_by_zero() {
    let rooms = [1, 1500, 1 << 39].map(|limit| [0, 1].map(|in_bytes| QueueLimit { limit, in_bytes })).concat();
    for (rate, room) in [None, Some(0), Some(8), Some(LINE), Some(u64::MAX)].into_iter().zip(rooms.iter().cycle()) {
        for target in [0, 1, u64::MAX] {
            let params = AutoParams::new(*room, target, true, rate, 8);
            let (mut state, mut sets) = (AutoState::default(), vec![SlotSet::default(); params.sets()]);
            let mut now = 0_u64;
            for number in 0..20_000_u64 {
                let throw = dice::random_bits(rate.unwrap_or(1), number);
                now = now.saturating_add(throw >> (throw & 63));
                let waiting = Backlog { bytes: throw % (1 << 39), packets: throw % (1 << 39) };
                let bytes = if throw & 64 == 0 { u32::MAX } else { 1500 };
                let arrival = ArrivingPacket {
                    now,
                    backlog: waiting,
                    flow: throw as u32 % 50,
                    bytes,
                    ecn_capable: 1,
                    ..ArrivingPacket::default()
                };
                judge_arrival(&params, &mut state, &mut sets, &arrival);
            }
        }
    }
}
