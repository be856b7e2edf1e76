use std::time::Duration;

use super::*;

const ALL: u64 = u64::MAX;

fn claims(pairs: &[(u32, u64)]) -> Vec<Claim> {
    pairs.iter().map(|&(weight, amount)| Claim { weight, demand: amount }).collect()
}

fn shares(rate: u64, claims: &[Claim]) -> Vec<u64> {
    let division = allocate(rate, &mut claims.to_vec());
    claims.iter().map(|claim| division.share(*claim)).collect()
}

#[test]
fn shares_match_values_computed_by_hand() {
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

/// Pseudorandom numbers that are equal in every run (xorshift64*).
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
            let amount = [0, self.below(1000), self.below(10_000_000), ALL][self.below(4) as usize];
            Claim { weight: 1 + self.below(weight) as u32, demand: amount }
        };
        (0..count).map(|_| one()).collect()
    }
}

/// Max-min by its definition: no section gets more than its demand, all together get the rate or all demands, and
/// unsatisfied sections have equal rates per unit of weight.
#[test]
fn shares_are_max_min() {
    let mut rng = SeededRng(7);
    for round in 0..20_000 {
        let (rate, asked) = (rng.below(20_000_000), rng.claims());
        let got = shares(rate, &asked);
        let sum: u64 = got.iter().sum();
        assert!(sum <= rate, "{round}: {sum} of {rate}");
        let total_demand = asked.iter().fold(0, |sum: u64, claim| sum.saturating_add(claim.demand));
        // A byte of each may be lost in rounding.
        assert!(sum + asked.len() as u64 >= rate.min(total_demand), "{round}: {sum} of {rate} for {total_demand}");
        let for_each = |got: u64, claim: &Claim| got as f64 / f64::from(claim.weight);
        let most = got.iter().zip(&asked).map(|(got, claim)| for_each(*got, claim)).fold(0.0, f64::max);
        for (got, claim) in got.iter().zip(&asked) {
            assert!(*got <= claim.demand, "{round}");
            let unsatisfied = *got < claim.demand;
            assert!(!unsatisfied || for_each(got + 1, claim) >= most * (1.0 - 1e-9), "{round}: {got} {claim:?} {most}");
        }
    }
}

#[test]
fn allocation_is_independent_of_the_claim_order() {
    let mut rng = SeededRng(11);
    for _ in 0..2000 {
        let (rate, asked) = (rng.below(20_000_000), rng.claims());
        let mut other = asked.clone();
        for at in (1..other.len()).rev() {
            other.swap(at, rng.below(at as u64 + 1) as usize);
        }
        assert_eq!(allocate(rate, &mut asked.clone()), allocate(rate, &mut other));
    }
}

#[test]
fn shares_depend_only_on_the_ratio_of_weights() {
    let of = |weight| shares(1_000_000, &claims(&[(weight, ALL), (weight, 1000), (weight, ALL)]));
    assert_eq!(of(1), of(1_000_000));
}

/// The ceiling of a section is at least its share, and at most the rate of the interface.
#[test]
fn ceilings_are_between_the_share_and_the_rate() {
    let mut rng = SeededRng(13);
    for _ in 0..5000 {
        let (rate, asked) = (rng.below(20_000_000), rng.claims());
        let division = allocate(rate, &mut asked.clone());
        for claim in asked {
            let ceiling = division.ceiling(claim);
            assert!((division.share(claim)..=rate).contains(&ceiling), "{claim:?} {division:?}");
        }
    }
    let alone = allocate(100, &mut claims(&[(1, 10)]));
    assert_eq!(alone.ceiling(Claim { weight: 1, demand: 10 }), 100, "a single section may use the whole rate");
    let new = Claim { weight: 1, demand: 0 };
    assert_eq!(Allocation::empty(100).ceiling(new), 100);
    let taken = allocate(100, &mut claims(&[(1, ALL)]));
    assert_eq!(taken.ceiling(new), 50, "a new section gets its share at once");
    assert_eq!(taken.ceiling(Claim { weight: 1, demand: 60 }), 84, "a section with more demand gets room to grow");
    let crowd = allocate(100, &mut claims(&[(1, 0), (1, 0), (2, 0)]));
    assert_eq!(crowd.ceiling(new), 25, "new sections share with each other");
    assert_eq!((taken.level(), alone.level()), (Some(100), None));
}

#[test]
fn section_near_its_ceiling_has_unlimited_demand() {
    let seen = |bytes, limited| SendSample { bytes, span: Duration::from_secs(1), congestion_limited: limited };
    let mut estimator = DemandEstimator::default();
    assert_eq!(estimator.judge(seen(80, true), 100), ALL);
    assert_eq!(estimator.judge(seen(500, true), 1000), 550, "half of the ceiling, and a margin");
    assert_eq!(estimator.judge(seen(0, true), 1000), 385, "a pause lowers the demand gradually");
    let decayed = (0..10).map(|_| estimator.judge(seen(0, true), 1000)).last();
    assert!(decayed.is_some_and(|demand| demand < 20), "{decayed:?}");
    assert_eq!(estimator.judge(seen(800, true), 1000), ALL);
    assert_eq!(estimator.judge(seen(10, false), 1000), 11, "a lack of bytes lowers the demand at once");
    let absurd = SendSample { bytes: u64::MAX, span: Duration::ZERO, congestion_limited: true };
    assert_eq!(estimator.judge(absurd, u64::MAX), ALL, "no overflow");
}

/// A section with a steady rate below its share never counts as held back: the others would lose its share each time.
#[test]
fn steady_slow_section_leaves_the_unused_share_to_others() {
    let (rate, span) = (1_000_000, Duration::from_millis(100));
    let mut estimator = DemandEstimator::default();
    let mut slow = Claim { weight: 1, demand: 0 };
    let greedy = Claim { weight: 1, demand: ALL };
    for round in 0..100 {
        let division = allocate(rate, &mut [slow, greedy]);
        slow.demand =
            estimator.judge(SendSample { bytes: 30_000, span, congestion_limited: false }, division.ceiling(slow));
        assert_eq!(slow.demand, 330_000, "{round}");
        assert!(allocate(rate, &mut [slow, greedy]).share(greedy) >= 669_999);
    }
}

/// Sections that use their whole ceiling reach their shares in three rounds from any start.
#[test]
fn greedy_sections_reach_their_shares_after_three_rounds() {
    let (rate, span) = (1_000_000, Duration::from_millis(100));
    let mut sections: Vec<(DemandEstimator, Claim)> =
        [1, 1, 3].map(|weight| (DemandEstimator::default(), Claim { weight, demand: 0 })).to_vec();
    for round in 0..10 {
        let mut asked: Vec<_> = sections.iter().map(|(_, claim)| *claim).collect();
        let division = allocate(rate, &mut asked);
        let ceilings: Vec<_> = sections.iter().map(|(_, claim)| division.ceiling(*claim)).collect();
        if round >= 3 {
            assert_eq!(ceilings, [200_000, 200_000, 600_000], "{round}");
        }
        for ((estimator, claim), ceiling) in sections.iter_mut().zip(ceilings) {
            claim.demand = estimator.judge(SendSample { bytes: ceiling / 10, span, congestion_limited: true }, ceiling);
        }
    }
}

#[test]
fn min_interval_is_longer_at_low_rates() {
    assert_eq!(DemandEstimator::min_interval(120_000, 1500), Duration::from_millis(100));
    assert!(DemandEstimator::min_interval(0, 1500) > Duration::from_secs(60), "no division by zero");
}

#[test]
fn jain_index_matches_known_values() {
    let of = |values: &[f64]| {
        let squares = values.iter().map(|value| value * value).sum();
        jain_index(values.len(), values.iter().sum(), squares)
    };
    assert_eq!(of(&[3.0, 3.0, 3.0]), Some(1.0));
    assert_eq!(of(&[1.0, 0.0]), Some(0.5));
    assert_eq!((of(&[1.0]), of(&[0.0, 0.0]), of(&[])), (None, None, None));
}

/// A section that uses its whole ceiling has the whole rate if alone, and half beside another section. A new
/// section has its half at once; the next round takes that half from the first section.
#[test]
fn single_section_has_the_whole_rate_before_and_after_another() {
    let (rate, span) = (1_000_000, Duration::from_millis(100));
    let mut sections = [(); 2].map(|()| (DemandEstimator::default(), Claim { weight: 1, demand: 0 }));
    for round in 0..30 {
        let both = (10..20).contains(&round);
        let here = if both { 2 } else { 1 };
        let division = allocate(rate, &mut sections[..here].iter().map(|(_, claim)| *claim).collect::<Vec<_>>());
        let ceilings: Vec<_> = sections[..here].iter().map(|(_, claim)| division.ceiling(*claim)).collect();
        match round {
            10 => assert_eq!(ceilings, [1_000_000, 500_000]),
            11..20 => assert_eq!(ceilings, [500_000; 2], "{round}"),
            _ => assert_eq!(ceilings, [rate], "{round}"),
        }
        for ((estimator, claim), ceiling) in sections.iter_mut().zip(ceilings) {
            claim.demand = estimator.judge(SendSample { bytes: ceiling / 10, span, congestion_limited: true }, ceiling);
        }
    }
}
