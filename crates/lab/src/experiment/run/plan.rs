//! The order of runs: randomised complete blocks.
//!
//! In each block, every cell runs once, in a random order drawn for the block. Changes of the machine over time
//! therefore affect all treatments alike, and each run is compared with a base run close in time.

use std::time::Duration;

use crate::experiment::spec::read::ExperimentCell;
use ekiden_emulator::rng::SeededRng;

/// A run of the plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlannedRun<'a> {
    /// Number of the block, from 0.
    pub block: u32,
    /// Position of the run in the order of all runs, from 0.
    pub order: u32,
    /// The cell to run.
    pub cell: &'a ExperimentCell,
    /// The seed of the emulator's random decisions, common to all runs of a block.
    pub seed: u64,
}

/// Returns all runs of an experiment, in the order in which they are to be made.
#[must_use]
pub fn plan_runs<'a>(cells: &[&'a ExperimentCell], blocks: u32, seed: u64) -> Vec<PlannedRun<'a>> {
    let (order, seeds) = (SeededRng::new(seed).derive("order"), SeededRng::new(seed).derive("block"));
    let in_block =
        |block: u32| shuffle(cells, order.derive(&block.to_string())).into_iter().map(move |cell| (block, cell));
    (0_u32..)
        .zip((0..blocks).flat_map(in_block))
        .map(|(order, (block, cell))| PlannedRun { block, order, cell, seed: seeds.bits(block.into()) })
        .collect()
}

/// Returns the delay between the end of the preparations and the start of `name`: a time below `stagger`, drawn with
/// the seed of the run. If nothing else is random, only this delay distinguishes the blocks.
#[must_use]
pub fn start_delay(stagger: Duration, seed: u64, name: &str) -> Duration {
    stagger.mul_f64(SeededRng::new(seed).derive("start").derive(name).uniform(0))
}

/// Shuffles with the algorithm of Fisher and Yates in Durstenfeld's version (1964).
fn shuffle<T: Copy>(items: &[T], rng: SeededRng) -> Vec<T> {
    let mut items = items.to_vec();
    for last in (1..items.len()).rev() {
        #[allow(clippy::cast_possible_truncation, reason = "less than the length")]
        let other = (rng.bits(last as u64) % (last as u64 + 1)) as usize;
        items.swap(last, other);
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffle_is_a_permutation_that_depends_on_the_seed() {
        let items: Vec<u32> = (0..50).collect();
        let first = shuffle(&items, SeededRng::new(1));
        let mut sorted = first.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, items);
        assert_eq!(first, shuffle(&items, SeededRng::new(1)));
        assert_ne!(first, shuffle(&items, SeededRng::new(2)));
        assert_ne!(first, items);
    }

    #[test]
    fn shuffle_is_uniform() {
        let mut counts = [[0_u32; 3]; 3];
        for seed in 0..3000 {
            for (place, item) in shuffle(&[0_usize, 1, 2], SeededRng::new(seed)).into_iter().enumerate() {
                counts[place][item] += 1;
            }
        }
        assert!(counts.iter().flatten().all(|count| (900..1100).contains(count)), "{counts:?}");
    }

    #[test]
    fn start_delays_depend_on_the_seed_and_the_name() {
        let stagger = Duration::from_millis(100);
        let delays =
            [(1, "cubic"), (1, "ctcp"), (2, "cubic"), (2, "ctcp")].map(|(seed, name)| start_delay(stagger, seed, name));
        for (place, delay) in delays.iter().enumerate() {
            assert!(*delay < stagger && !delays[..place].contains(delay), "{delays:?}");
        }
        assert_eq!(delays[0], start_delay(stagger, 1, "cubic"));
        assert_eq!(start_delay(Duration::ZERO, 1, "cubic"), Duration::ZERO);
    }
}

#[cfg(test)]
mod blocks_tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::experiment::examples_for_tests::small_experiment;

    #[test]
    fn every_block_is_complete_and_has_a_seed_of_its_own() {
        let experiment = small_experiment("").unwrap();
        let cells: Vec<&ExperimentCell> = experiment.selected_cells(true).collect();
        let plan = plan_runs(&cells, 3, experiment.seed);
        assert_eq!(plan.len(), 3 * cells.len());
        for (number, block) in (0_u32..).zip(plan.chunks(cells.len())) {
            let places: BTreeSet<_> = block.iter().map(|planned| &planned.cell.key).collect();
            assert_eq!(places.len(), cells.len());
            assert!(block.iter().all(|planned| planned.block == number && planned.seed == block[0].seed));
        }
        assert_ne!(plan[0].seed, plan[cells.len()].seed);
        assert!(plan.iter().zip(0..).all(|(planned, order)| planned.order == order));
        assert_eq!(plan, plan_runs(&cells, 3, experiment.seed));
    }
}
