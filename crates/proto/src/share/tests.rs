use std::time::Duration;

use super::*;

const ALL: u64 = u64::MAX;

fn claims(pairs: &[(u32, u64)]) -> Vec<Claim> {
    pairs.iter().map(|&(weight, wants)| Claim { weight, demand: wants }).collect()
}

fn shares(rate: u64, claims: &[Claim]) -> Vec<u64> {
    let division = allocate(rate, &mut claims.to_vec());
    claims.iter().map(|claim| division.share(*claim)).collect()
}

#[test]
fn shares_are_what_one_would_do_by_hand() {
    for (rate, asked, expected) in [
        (100, &[(1, ALL)][..], &[100][..]),
        (100, &[(1, ALL), (1, ALL)], &[50, 50]),
        (100, &[(1, ALL), (3, ALL)], &[25, 75]),
        (100, &[(1, 10), (1, ALL), (1, ALL)], &[10, 45, 45]),
        (100, &[(1, 10), (1, 40), (1, ALL)], &[10, 40, 50]),
        (100, &[(1, 10), (1, 20)], &[10, 20]),
        (100, &[(2, 10), (1, ALL), (3, 60)], &[10, 30, 60]),
        (100, &[(1, 0), (1, ALL)], &[0, 100]),
        (0, &[(1, ALL)], &[0]),
        (100, &[], &[]),
    ] {
        assert_eq!(shares(rate, &claims(asked)), expected, "{asked:?}");
    }
}

/// Numbers that are not alike, the same in every run (xorshift64*).
struct SeededRng(u64);

impl SeededRng {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % most
    }

    fn claims(&mut self) -> Vec<Claim> {
        let count = self.below(40);
        let mut one = || {
            let weight = 1 + [0, 2, 999_999][self.below(3) as usize];
            let wants = [0, self.below(1000), self.below(10_000_000), ALL][self.below(4) as usize];
            Claim { weight: 1 + self.below(weight) as u32, demand: wants }
        };
        (0..count).map(|_| one()).collect()
    }
}

/// Max-min by its definition: no section gets more than its demand, all together get the rate or all demands, and
/// unsatisfied sections have equal rates per unit of weight.
#[test]
fn shares_are_max_min() {
    let mut dice = SeededRng(7);
    for round in 0..20_000 {
        let (rate, asked) = (dice.below(20_000_000), dice.claims());
        let got = shares(rate, &asked);
        let sum: u64 = got.iter().sum();
        assert!(sum <= rate, "{round}: {sum} of {rate}");
        let all_wants = asked.iter().fold(0, |sum: u64, claim| sum.saturating_add(claim.demand));
        // A byte of each may be lost in rounding.
        assert!(sum + asked.len() as u64 >= rate.min(all_wants), "{round}: {sum} of {rate} for {all_wants}");
        let for_each = |got: u64, claim: &Claim| got as f64 / f64::from(claim.weight);
        let most = got.iter().zip(&asked).map(|(got, claim)| for_each(*got, claim)).fold(0.0, f64::max);
        for (got, claim) in got.iter().zip(&asked) {
            assert!(*got <= claim.demand, "{round}");
            let wanting = *got < claim.demand;
            assert!(!wanting || for_each(got + 1, claim) >= most * (1.0 - 1e-9), "{round}: {got} {claim:?} {most}");
        }
    }
}

#[test]
fn order_does_not_matter() {
    let mut dice = SeededRng(11);
    for _ in 0..2000 {
        let (rate, asked) = (dice.below(20_000_000), dice.claims());
        let mut other = asked.clone();
        for at in (1..other.len()).rev() {
            other.swap(at, dice.below(at as u64 + 1) as usize);
        }
        assert_eq!(allocate(rate, &mut asked.clone()), allocate(rate, &mut other));
    }
}

#[test]
fn equal_weights_are_one_share_whatever_they_are() {
    let of = |weight| shares(1_000_000, &claims(&[(weight, ALL), (weight, 1000), (weight, ALL)]));
    assert_eq!(of(1), of(1_000_000));
}

/// The ceiling of a section is at least its share, and at most the rate of the interface.
#[test]
fn ceilings_leave_room_for_who_speeds_up() {
    let mut dice = SeededRng(13);
    for _ in 0..5000 {
        let (rate, asked) = (dice.below(20_000_000), dice.claims());
        let division = allocate(rate, &mut asked.clone());
        for claim in asked {
            let ceiling = division.ceiling(claim);
            assert!((division.share(claim)..=rate).contains(&ceiling), "{claim:?} {division:?}");
        }
    }
    let alone = allocate(100, &mut claims(&[(1, 10)]));
    assert_eq!(alone.ceiling(Claim { weight: 1, demand: 10 }), 100, "who is alone may have everything");
    let new = Claim { weight: 1, demand: 0 };
    assert_eq!(Allocation::empty(100).ceiling(new), 100);
    let taken = allocate(100, &mut claims(&[(1, ALL)]));
    assert_eq!(taken.ceiling(new), 50, "who comes gets its share at once");
    assert_eq!(taken.ceiling(Claim { weight: 1, demand: 60 }), 84, "and who has more, room to show it");
    let crowd = allocate(100, &mut claims(&[(1, 0), (1, 0), (2, 0)]));
    assert_eq!(crowd.ceiling(new), 25, "who comes with others shares with them");
    assert_eq!((taken.level(), alone.level()), (Some(100), None));
}

#[test]
fn who_sends_as_it_may_wants_more() {
    let seen = |bytes, pauses| SendSample { bytes, span: Duration::from_secs(1), congestion_limited: pauses };
    let mut pace = DemandEstimator::default();
    assert_eq!(pace.judge(seen(80, true), 100), ALL);
    assert_eq!(pace.judge(seen(500, true), 1000), 550, "half of what it may is what it wants, and a bit");
    assert_eq!(pace.judge(seen(0, true), 1000), 385, "a pause is not believed at once");
    let decayed = (0..10).map(|_| pace.judge(seen(0, true), 1000)).last();
    assert!(decayed.is_some_and(|wants| wants < 20), "{decayed:?}");
    assert_eq!(pace.judge(seen(800, true), 1000), ALL);
    assert_eq!(pace.judge(seen(10, false), 1000), 11, "a lack of bytes is");
    let absurd = SendSample { bytes: u64::MAX, span: Duration::ZERO, congestion_limited: true };
    assert_eq!(pace.judge(absurd, u64::MAX), ALL, "and no overflow");
}

/// A section with a steady rate below its share never counts as held back: the others would lose its share each time.
#[test]
fn a_steady_slow_section_does_not_take_what_it_does_not_use() {
    let (rate, span) = (1_000_000, Duration::from_millis(100));
    let mut pace = DemandEstimator::default();
    let mut slow = Claim { weight: 1, demand: 0 };
    let greedy = Claim { weight: 1, demand: ALL };
    for round in 0..100 {
        let division = allocate(rate, &mut [slow, greedy]);
        slow.demand = pace.judge(SendSample { bytes: 30_000, span, congestion_limited: false }, division.ceiling(slow));
        assert_eq!(slow.demand, 330_000, "{round}");
        assert!(allocate(rate, &mut [slow, greedy]).share(greedy) >= 669_999);
    }
}

/// Sections that take all they may come to equal shares in three looks, from wherever they were.
#[test]
fn greedy_sections_have_their_shares_after_three_looks() {
    let (rate, span) = (1_000_000, Duration::from_millis(100));
    let mut sections: Vec<(DemandEstimator, Claim)> =
        [1, 1, 3].map(|weight| (DemandEstimator::default(), Claim { weight, demand: 0 })).to_vec();
    for look in 0..10 {
        let mut asked: Vec<_> = sections.iter().map(|(_, claim)| *claim).collect();
        let division = allocate(rate, &mut asked);
        let ceilings: Vec<_> = sections.iter().map(|(_, claim)| division.ceiling(*claim)).collect();
        if look >= 3 {
            assert_eq!(ceilings, [200_000, 200_000, 600_000], "{look}");
        }
        for ((pace, claim), ceiling) in sections.iter_mut().zip(ceilings) {
            claim.demand = pace.judge(SendSample { bytes: ceiling / 10, span, congestion_limited: true }, ceiling);
        }
    }
}

#[test]
fn few_packets_are_watched_for_longer() {
    assert_eq!(DemandEstimator::min_interval(120_000, 1500), Duration::from_millis(100));
    assert!(DemandEstimator::min_interval(0, 1500) > Duration::from_secs(60), "and no division by nothing");
}

#[test]
fn jain_says_how_alike_values_are() {
    let of = |values: &[f64]| {
        let squares = values.iter().map(|value| value * value).sum();
        jain_index(values.len(), values.iter().sum(), squares)
    };
    assert_eq!(of(&[3.0, 3.0, 3.0]), Some(1.0));
    assert_eq!(of(&[1.0, 0.0]), Some(0.5));
    assert_eq!((of(&[1.0]), of(&[0.0, 0.0]), of(&[])), (None, None, None));
}

/// A section that sends all it may has the whole rate while it is alone, and half of the rate beside another section. A new
/// section has its half at once; the next look takes that half from the first section.
#[test]
fn one_alone_has_everything_before_and_after_another() {
    let (rate, span) = (1_000_000, Duration::from_millis(100));
    let mut sections = [(); 2].map(|()| (DemandEstimator::default(), Claim { weight: 1, demand: 0 }));
    for look in 0..30 {
        let both = (10..20).contains(&look);
        let here = if both { 2 } else { 1 };
        let division = allocate(rate, &mut sections[..here].iter().map(|(_, claim)| *claim).collect::<Vec<_>>());
        let ceilings: Vec<_> = sections[..here].iter().map(|(_, claim)| division.ceiling(*claim)).collect();
        match look {
            10 => assert_eq!(ceilings, [1_000_000, 500_000]),
            11..20 => assert_eq!(ceilings, [500_000; 2], "{look}"),
            _ => assert_eq!(ceilings, [rate], "{look}"),
        }
        for ((pace, claim), ceiling) in sections.iter_mut().zip(ceilings) {
            claim.demand = pace.judge(SendSample { bytes: ceiling / 10, span, congestion_limited: true }, ceiling);
        }
    }
}
