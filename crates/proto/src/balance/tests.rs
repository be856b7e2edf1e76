//! Single decisions, and a simulation of a group of four members with 2,000 sessions a second.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::time::Instant;

use super::*;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn members(count: usize) -> Vec<MemberState> {
    let id = |at| member_id(&format!("relay-{at}.example:7000"));
    (0..count)
        .map(|at| MemberState { id: id(at), is_up: true, is_refusing: false, is_slow: false, sessions: 0 })
        .collect()
}

fn client(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + number).into()
}

/// The number of times that each member is the first choice in 40,000 decisions.
fn first_choices(balance: Balance, members: &[MemberState]) -> Vec<usize> {
    let mut counts = vec![0; members.len()];
    for number in 0..40_000 {
        counts[order(balance, members, client(number), mix(u64::from(number) + 1))[0]] += 1;
    }
    counts
}

#[test]
fn every_order_has_every_member_once_and_the_best_tier_first() {
    for seed in 0..2000_u64 {
        let mut members = members(1 + (seed % 7) as usize);
        for (at, member) in members.iter_mut().enumerate() {
            let bits = mix(seed * 16 + at as u64);
            (member.is_up, member.is_refusing, member.is_slow) = (bits & 1 == 0, bits & 2 == 0, bits & 4 == 0);
            member.sessions = (bits >> 8) as usize % 9;
        }
        for balance in Balance::ALL {
            let places = order(balance, &members, client(seed as u32), mix(seed));
            let tier = |&at: &usize| (!members[at].is_up, members[at].is_refusing, members[at].is_slow);
            let tiers: Vec<_> = places.iter().map(tier).collect();
            assert!(tiers.is_sorted(), "{balance:?} {tiers:?}");
            let mut sorted = places.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..members.len()), "{balance:?} {places:?}");
        }
    }
}

#[test]
fn equal_members_get_equal_shares() {
    for balance in Balance::ALL {
        let counts = first_choices(balance, &members(4));
        assert!(counts.iter().all(|count| (9_500..=10_500).contains(count)), "{balance:?} {counts:?}");
    }
}

#[test]
fn least_loaded_choice_avoids_the_member_with_most_sessions() {
    let mut members = members(4);
    members[2].sessions = 1;
    let counts = first_choices(Balance::Least, &members);
    assert_eq!(counts[2], 0, "{counts:?}");
    let idle = [0, 1, 3].map(|at| counts[at]);
    assert!(idle.iter().all(|count| (12_700..=14_000).contains(count)), "{counts:?}");
}

/// A member that refuses sessions has few of them, which must not make this member the first choice.
#[test]
fn a_refusing_member_is_chosen_last_for_a_second() {
    let start = Instant::now();
    let mut load = MemberLoad::default();
    load.on_refusal(start);
    assert!(load.is_refusing(start + SECOND - MS) && !load.is_refusing(start + SECOND));
    let mut members = members(3);
    members[1].is_refusing = true;
    (members[0].sessions, members[2].sessions, members[2].is_slow) = (7, 7, true);
    for balance in Balance::ALL {
        assert_eq!(first_choices(balance, &members), [40_000, 0, 0], "{balance:?}");
        assert_eq!(order(balance, &members, client(1), 1), [0, 2, 1], "{balance:?}");
    }
}

#[test]
fn failure_of_a_member_moves_only_its_clients() {
    let (before, mut after) = (members(4), members(4));
    after[1].is_up = false;
    let choice = |members: &[MemberState], number| order(Balance::Client, members, client(number), u64::from(number));
    let mut moved = [0; 4];
    for number in 0..20_000 {
        let (first, then) = (choice(&before, number)[0], choice(&after, number)[0]);
        if first == 1 {
            moved[then] += 1;
        } else {
            assert_eq!(then, first, "client {number}");
        }
    }
    assert!([0, 2, 3].iter().all(|&at| (1_450..=1_900).contains(&moved[at])), "shared by the others: {moved:?}");
}

#[test]
fn client_choice_is_independent_of_the_member_order() {
    let members = members(5);
    let turned: Vec<MemberState> = members.iter().rev().copied().collect();
    for number in 0..1000 {
        let id = |members: &[MemberState]| members[order(Balance::Client, members, client(number), 0)[0]].id;
        assert_eq!(id(&members), id(&turned));
    }
    let mapped: IpAddr = "::ffff:10.0.0.7".parse().unwrap();
    assert_eq!(order(Balance::Client, &members, mapped, 0), order(Balance::Client, &members, client(7), 0));
}

/// Hashes are part of the interface: relays of different versions choose the same member.
#[test]
fn client_choice_matches_recorded_values() {
    let members = members(4);
    let firsts: Vec<usize> = (0..12).map(|number| order(Balance::Client, &members, client(number), 0)[0]).collect();
    assert_eq!(firsts, [0, 0, 3, 2, 0, 1, 2, 1, 3, 2, 1, 3]);
}

#[test]
fn member_is_slow_relative_to_the_median_latency() {
    let slow = |latencies: &[u64]| are_slow(&latencies.iter().map(|&ms| Some(MS * ms as u32)).collect::<Vec<_>>());
    assert_eq!(slow(&[10, 10, 10, 33]), [false, false, false, true]);
    assert_eq!(slow(&[10, 10, 10, 32]), [false; 4], "(10 + 1) * 3 - 1 is the limit");
    assert_eq!(slow(&[10, 100]), [false, true], "of two, one can be slow");
    assert_eq!(slow(&[10, 100, 100]), [false; 3], "most are slow: there is no better member");
    assert_eq!(slow(&[0, 0, 0, 2]), [false; 4], "two milliseconds are noise");
    assert_eq!(are_slow(&[None, Some(MS), None, Some(SECOND)]), [false, false, false, true]);
    assert_eq!(are_slow(&[None, Some(SECOND)]), [false; 2]);
    assert_eq!(are_slow(&[]), [false; 0]);
}

#[test]
fn latency_rises_fast_and_falls_slowly() {
    let mut now = Instant::now();
    let mut load = MemberLoad::default();
    let mut answer = |load: &mut MemberLoad, latency| {
        load.on_session(now);
        now += 10 * MS;
        load.on_answer(now, Some(latency));
        load.on_session_end(now, false);
        load.latency(now).unwrap()
    };
    assert_eq!(answer(&mut load, 10 * MS), 10 * MS, "the first measurement");
    assert_eq!(answer(&mut load, 100 * MS), 10 * MS, "one measurement may be a lost packet");
    let risen = (0..50).map(|_| answer(&mut load, 100 * MS)).last().unwrap();
    assert!((80 * MS..85 * MS).contains(&risen), "after 500 ms: {risen:?}");
    let fallen = (0..50).map(|_| answer(&mut load, 10 * MS)).last().unwrap();
    assert!((70 * MS..75 * MS).contains(&fallen), "after 500 ms: {fallen:?}");
    let fallen = (0..1500).map(|_| answer(&mut load, 10 * MS)).last().unwrap();
    assert!(fallen < 11 * MS, "after 15 s: {fallen:?}");
    assert_eq!(load.sessions(), 0);
}

#[test]
fn overdue_answer_counts_as_latency() {
    let start = Instant::now();
    let mut load = MemberLoad::default();
    load.on_connected(start, 20 * MS, false);
    assert_eq!(load.latency(start), Some(10 * MS), "a round trip is half of a setup");
    load.on_session(start);
    load.on_session(start + 500 * MS);
    assert!(!load.needs_probe(start + 249 * MS, false) && load.needs_probe(start + 250 * MS, false));
    assert_eq!(load.latency(start + 750 * MS), Some(10 * MS));
    assert_eq!(load.latency(start + 760 * MS), Some(760 * MS));
    // A member that answers a probe is healthy: the answers to its sessions are late because of their targets.
    load.on_connected(start + 800 * MS, 20 * MS, true);
    assert_eq!(load.latency(start + 900 * MS), Some(10 * MS));
    assert!(!load.needs_probe(start + SECOND, false));
    // A session that the client ends early still counts as a late answer.
    load.on_answer(start + SECOND, None);
    load.on_session_end(start + SECOND, false);
    load.on_session_end(start + 3 * SECOND, true);
    assert!(load.latency(start + 3 * SECOND) > Some(SECOND));
    assert_eq!((load.sessions(), load.needs_probe(start + 9 * SECOND, false)), (0, false));
}

/// A simulated member: one server with a queue, behind a network without delay.
struct SimulatedMember {
    load: MemberLoad,
    /// The time that a session takes; `None` if the member never answers.
    service: Option<Duration>,
    is_dead: bool,
    is_up: bool,
    busy_until: Instant,
    is_probed: bool,
}

impl SimulatedMember {
    /// Returns the time at which a request that arrives at `now` is answered; `None` if never.
    fn serve(&mut self, now: Instant) -> Option<Instant> {
        self.busy_until = self.busy_until.max(now) + self.service?;
        Some(self.busy_until)
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum SimulatedEvent {
    Arrival,
    Answer { member: usize, since: Instant },
    End { member: usize },
    Probes,
    ProbeAnswer { member: usize, since: Instant },
}

/// A group under load, and the state of the relay that distributes sessions among its members.
struct Simulation {
    now: Instant,
    members: Vec<SimulatedMember>,
    events: BinaryHeap<Reverse<(Instant, u64, SimulatedEvent)>>,
    number: u64,
    /// Time from ANSWER to the end of a session.
    duration: Duration,
    chosen: Vec<usize>,
    failed: usize,
}

impl Simulation {
    /// Four members, each of which can serve `capacity` sessions a second.
    fn new(capacity: u32, duration: Duration) -> Self {
        let now = Instant::now();
        let member = || SimulatedMember {
            load: MemberLoad::default(),
            service: Some(SECOND / capacity),
            is_dead: false,
            is_up: true,
            busy_until: now,
            is_probed: false,
        };
        let members = (0..4).map(|_| member()).collect();
        let (events, chosen) = (BinaryHeap::new(), vec![0; 4]);
        let mut simulation = Self { now, members, events, number: 0, duration, chosen, failed: 0 };
        simulation.at(now, SimulatedEvent::Arrival);
        simulation.at(now, SimulatedEvent::Probes);
        simulation
    }

    fn at(&mut self, time: Instant, event: SimulatedEvent) {
        self.number += 1;
        self.events.push(Reverse((time, self.number, event)));
    }

    /// Returns each member's share of the sessions that arrive within `span`, in percent.
    fn run(&mut self, span: Duration) -> Vec<f64> {
        let end = self.now + span;
        (self.chosen, self.failed) = (vec![0; 4], 0);
        while self.events.peek().is_some_and(|Reverse((time, ..))| *time <= end) {
            let Some(Reverse((time, _, event))) = self.events.pop() else { unreachable!() };
            self.now = time;
            self.on_event(event);
        }
        self.now = end;
        let all = self.chosen.iter().sum::<usize>() as f64;
        self.chosen.iter().map(|chosen| *chosen as f64 * 100.0 / all).collect()
    }

    fn on_event(&mut self, event: SimulatedEvent) {
        let now = self.now;
        match event {
            SimulatedEvent::Arrival => {
                self.open_session();
                // Exponential gaps with a mean of 0.5 ms.
                let uniform = (mix(self.number) >> 11) as f64 / (1_u64 << 53) as f64;
                self.at(now + (MS / 2).mul_f64(-(1.0 - uniform).ln()), SimulatedEvent::Arrival);
            }
            SimulatedEvent::Answer { member, since } => {
                self.members[member].load.on_answer(now, Some(now - since));
                self.at(now + self.duration, SimulatedEvent::End { member });
            }
            SimulatedEvent::End { member } => self.members[member].load.on_session_end(now, false),
            SimulatedEvent::Probes => {
                self.probe();
                self.at(now + PROBE_INTERVAL, SimulatedEvent::Probes);
            }
            SimulatedEvent::ProbeAnswer { member, since } => {
                let member = &mut self.members[member];
                member.is_probed = false;
                member.load.on_connected(now, (now - since) * 2, true);
            }
        }
    }

    fn are_slow(&self) -> Vec<bool> {
        let latency = |member: &SimulatedMember| member.load.latency(self.now).filter(|_| member.is_up);
        are_slow(&self.members.iter().map(latency).collect::<Vec<_>>())
    }

    fn open_session(&mut self) {
        let (now, slow) = (self.now, self.are_slow());
        let state = |(at, is_slow): (usize, bool)| {
            let SimulatedMember { is_up, load, .. } = &self.members[at];
            MemberState {
                id: at as u64,
                is_up: *is_up,
                is_refusing: load.is_refusing(now),
                is_slow,
                sessions: load.sessions(),
            }
        };
        let states: Vec<MemberState> = slow.into_iter().enumerate().map(state).collect();
        for at in order(Balance::Least, &states, client(1), mix(self.number)) {
            let member = &mut self.members[at];
            if member.is_dead {
                member.is_up = false;
                continue;
            }
            self.chosen[at] += 1;
            member.load.on_session(now);
            if let Some(answer) = member.serve(now) {
                self.at(answer, SimulatedEvent::Answer { member: at, since: now });
            }
            return;
        }
        self.failed += 1;
    }

    fn probe(&mut self) {
        for (at, is_slow) in self.are_slow().into_iter().enumerate() {
            let (now, member) = (self.now, &mut self.members[at]);
            if member.is_probed || member.is_dead || !member.load.needs_probe(now, is_slow) {
                continue;
            }
            member.is_probed = true;
            if let Some(answer) = member.serve(now) {
                self.at(answer, SimulatedEvent::ProbeAnswer { member: at, since: now });
            }
        }
    }
}

/// Members with little and with much spare capacity, and short and long sessions. A tenth of each capacity is less than
/// a member's share of the load.
fn load_cases() -> impl Iterator<Item = (u32, Duration)> {
    [1500, 3000].into_iter().flat_map(|capacity| [MS, 50 * MS, 5 * SECOND].map(|duration| (capacity, duration)))
}

#[test]
fn members_of_a_simulated_group_get_equal_shares() {
    for (capacity, duration) in load_cases() {
        let mut group = Simulation::new(capacity, duration);
        group.run(SECOND);
        let shares = group.run(10 * SECOND);
        assert!(shares.iter().all(|share| (22.5..=27.5).contains(share)), "{capacity}/s {duration:?}: {shares:?}");
    }
}

#[test]
fn dead_member_gets_no_sessions_and_slow_member_few() {
    for (capacity, duration) in load_cases() {
        let mut group = Simulation::new(capacity, duration);
        group.run(2 * SECOND);
        group.members[0].is_dead = true;
        group.members[1].service = Some(SECOND * 10 / capacity);
        group.run(2 * SECOND);
        let shares = group.run(10 * SECOND);
        assert_eq!((shares[0], group.failed), (0.0, 0), "{capacity}/s {duration:?}: {shares:?}");
        assert!(shares[1] < 5.0, "{capacity}/s {duration:?}: {shares:?}");
        assert!((shares[2] - shares[3]).abs() < 10.0, "{capacity}/s {duration:?}: {shares:?}");
        group.members[1].service = Some(SECOND / capacity);
        group.run(20 * SECOND);
        let shares = group.run(10 * SECOND);
        assert!(shares[1] > 25.0, "after the recovery, {capacity}/s {duration:?}: {shares:?}");
    }
}

#[test]
fn unresponsive_member_is_avoided_within_a_second() {
    for (capacity, duration) in load_cases() {
        let mut group = Simulation::new(capacity, duration);
        group.run(2 * SECOND);
        group.members[3].service = None;
        group.run(SECOND);
        let shares = group.run(10 * SECOND);
        assert_eq!(shares[3], 0.0, "{capacity}/s {duration:?}: {shares:?}");
    }
}
