use super::*;
use crate::profile::Setting;

/// A connection on a simulated path; what happens is counted as the kernel does.
struct Path {
    sample: TuningSample,
    section: SectionTuner,
}

impl Path {
    fn of(rtt: u64) -> Self {
        let rtt = Duration::from_millis(rtt);
        let sample = TuningSample { rtt, rttvar: rtt / 50, ..TuningSample::default() };
        Self { sample, section: SectionTuner::default() }
    }

    /// A tenth of a second in which so many segments were sent, and so many of them again.
    fn sends(&mut self, sent: u32, retransmitted: u32, spurious: u32) -> Tuning {
        self.sample.taken_at += Duration::from_millis(100);
        self.sample.segments_sent += sent;
        self.sample.retransmitted += retransmitted;
        self.sample.spurious += spurious;
        self.section.update(self.sample)
    }

    fn receives(&mut self, received: u32, out_of_order: u32) -> Tuning {
        self.sample.taken_at += Duration::from_millis(100);
        self.sample.segments_received += received;
        self.sample.out_of_order += out_of_order;
        self.section.update(self.sample)
    }
}

/// Numbers that look random and are the same in each run (Marsaglia: Xorshift RNGs, 2003).
fn numbers(mut seed: u64) -> impl Iterator<Item = u32> {
    std::iter::repeat_with(move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 32) as u32
    })
}

#[test]
fn whatever_a_kernel_says_the_values_are_ones_that_it_takes() {
    let mut numbers = numbers(7);
    for _ in 0..200 {
        let mut section = SectionTuner::default();
        let mut at = Duration::ZERO;
        for _ in 0..50 {
            let mut next = |most: u32| numbers.next().unwrap_or(0) % most;
            at += Duration::from_millis(u64::from(next(5000)));
            let micros = |value: u32| Duration::from_micros(u64::from(value));
            let sample = TuningSample {
                taken_at: at,
                rtt: micros(next(5_000_000)),
                rttvar: micros(next(5_000_000)),
                segments_sent: next(u32::MAX),
                retransmitted: next(u32::MAX),
                spurious: next(u32::MAX),
                segments_received: next(u32::MAX),
                out_of_order: next(u32::MAX),
            };
            let tuning = section.update(sample);
            assert!((MIN_RTO_MIN..=MAX_RTO_MIN).contains(&tuning.rto_min), "{sample:?} {tuning:?}");
            let opening = Tuning::INITIAL.rto_max;
            assert!((MIN_RTO_MAX..=MAX_RTO_MAX.max(opening)).contains(&tuning.rto_max), "{sample:?} {tuning:?}");
            assert!(tuning.rto_max >= tuning.rto_min && tuning.delack_max < tuning.rto_min, "{tuning:?}");
            assert!(tuning.delack_max >= Duration::from_millis(8), "{tuning:?}");
        }
    }
}

#[test]
fn nothing_is_decided_before_there_is_a_round_trip() {
    let mut section = SectionTuner::default();
    let sample = TuningSample {
        taken_at: Duration::from_secs(1),
        segments_sent: 3,
        retransmitted: 3,
        ..TuningSample::default()
    };
    assert_eq!(section.update(sample), Tuning::INITIAL);
}

#[test]
fn longer_round_trips_never_mean_shorter_timeouts() {
    let tuning = |rtt| {
        let mut path = Path::of(rtt);
        (0..20).map(|_| path.sends(100, 0, 0)).last().unwrap()
    };
    let all: Vec<Tuning> = [1, 5, 10, 40, 80, 150, 300, 600, 1200, 3000].map(tuning).to_vec();
    assert!(all.is_sorted_by_key(|tuning| tuning.rto_min), "{all:?}");
    assert!(all.is_sorted_by_key(|tuning| tuning.rto_max), "{all:?}");
    assert_eq!((all[2].rto_min, all[2].rto_max), (Duration::from_millis(44), MIN_RTO_MAX), "10 ms");
    assert_eq!(all[9].rto_max, MAX_RTO_MAX, "3 s");
}

/// The tail's probe leaves after two round trips, and its answer is there after three.
#[test]
fn a_probe_of_the_tail_has_time_for_its_answer() {
    for rtt in [1, 10, 40, 80] {
        let mut path = Path::of(rtt);
        let tuning = path.sends(100, 5, 0);
        let timeout = path.sample.rtt + tuning.rto_min;
        assert!(timeout >= path.sample.rtt * 3 + Duration::from_millis(20), "{rtt} ms: {timeout:?}");
        assert!(tuning.rto_min < MAX_RTO_MIN, "{rtt} ms: {tuning:?}");
    }
    assert_eq!(Path::of(150).sends(100, 5, 0).rto_min, MAX_RTO_MIN, "the kernel takes no more");
}

#[test]
fn losses_make_timeouts_linear_and_acknowledgements_prompt() {
    let mut path = Path::of(40);
    assert!(!path.sends(100, 1, 0).thin_linear_timeouts, "one loss is chance");
    assert!(path.sends(1000, 10, 0).thin_linear_timeouts);
    assert!(path.sends(1000, 0, 0).thin_linear_timeouts, "half a percent so far");
    let clean = (0..600).map(|_| path.sends(1000, 0, 0)).last().unwrap();
    assert!(!clean.thin_linear_timeouts, "after a minute without loss");

    assert_eq!(path.receives(1000, 0).delack_max, RELAXED_DELACK, "bulk on a clean path");
    assert_eq!(path.receives(10, 0).delack_max, PROMPT_DELACK, "few at once");
    assert_eq!(path.receives(1000, 30).delack_max, PROMPT_DELACK, "some get lost");
}

#[test]
fn spurious_timeouts_are_put_off_until_they_stop_and_for_a_while() {
    let mut path = Path::of(2);
    let usual = path.sends(100, 3, 0).rto_min;
    assert_eq!(usual, MIN_RTO_MIN);
    let values: Vec<Duration> = (0..6).map(|_| path.sends(100, 2, 2).rto_min).collect();
    assert!(values[0] > usual && values.is_sorted() && values[5] == MAX_RTO_MIN, "{values:?}");
    let soon = path.sends(100, 0, 0).rto_min;
    assert_eq!(soon, MAX_RTO_MIN, "not at once");
    let later = (0..6000).map(|_| path.sends(100, 0, 0).rto_min).last().unwrap();
    assert!(later < MIN_RTO_MIN.mul_f64(NOTABLE), "{later:?}");
}

#[test]
fn a_stray_duplicate_among_many_losses_puts_nothing_off() {
    let mut path = Path::of(2);
    assert_eq!(path.sends(1000, 50, 2).rto_min, MIN_RTO_MIN);
}

#[test]
fn what_changes_little_is_not_set_again() {
    let mut path = Path::of(600);
    let before = path.sends(100, 0, 0);
    for wobble in [610, 560, 640, 600] {
        path.sample.rtt = Duration::from_millis(wobble);
        let now = path.sends(100, 0, 0);
        assert_eq!(now.changes_from(before).collect::<Vec<Setting>>(), [], "{wobble} ms");
    }
    path.sample.rtt = Duration::from_millis(1000);
    let now = path.sends(100, 0, 0);
    let keys: Vec<&str> = now.changes_from(before).map(|setting| setting.key()).collect();
    assert_eq!(keys, ["rto_max"]);
}
