//! The regret of path choices, relative to runs in which each candidate path is the only one.
//!
//! A choice is compared by medians, not by single runs: the figure of a path is the median over the runs with only this
//! path. A session on a path without such runs is compared by its own completion time.

use std::collections::BTreeMap;

use super::analyse;
use crate::experiment::collect::results::Run;
use crate::experiment::spec::read::{CellKey, Experiment, ExperimentCell};
use crate::program::mesh::{DIRECT, PathSetting};
use crate::stats;

/// The key of the completion time of the chosen path divided by that of the best candidate; 1 is optimal.
pub const REGRET: &str = "regret";
/// The key of the completion time of the direct path divided by that of the chosen path.
pub const OVER_DIRECT: &str = "over_direct";

/// The metric that both figures are calculated from.
const COMPLETION: &str = "completion_ms";

/// Returns the runs, with the two metrics added to the valid runs in which ekiden selects the path.
#[must_use]
pub fn with_regret(experiment: &Experiment, runs: &[Run]) -> Vec<Run> {
    let mut updated_runs = runs.to_vec();
    for cell in experiment.cells.iter().filter(|cell| matches!(cell.spec.treatment.path, Some(PathSetting::Auto(_)))) {
        let candidates = candidate_completions(experiment, cell, runs);
        let is_in_cell = |run: &&mut Run| run.treatment == cell.key.treatment && run.levels == cell.key.levels;
        for run in updated_runs.iter_mut().filter(is_in_cell).filter(|run| run.invalid.is_none()) {
            add_regret(run, &candidates);
        }
    }
    updated_runs
}

/// Returns the median completion time of each fixed path at the levels of `cell`, in milliseconds.
fn candidate_completions(experiment: &Experiment, cell: &ExperimentCell, runs: &[Run]) -> BTreeMap<String, f64> {
    let others = experiment.cells.iter().filter(|other| other.key.levels == cell.key.levels);
    let fixed = others.filter_map(|other| Some((other.spec.treatment.path.as_ref()?.name()?, &other.key)));
    fixed.filter_map(|(path, place)| Some((path, median_completion(runs, place)?))).collect()
}

fn median_completion(runs: &[Run], cell_key: &CellKey) -> Option<f64> {
    let values = analyse::cell_values(runs, cell_key, COMPLETION);
    (!values.is_empty()).then(|| stats::median(&values))
}

fn add_regret(run: &mut Run, candidates: &BTreeMap<String, f64>) {
    let Some(best) = candidates.values().copied().reduce(f64::min) else { return };
    let chosen: Vec<f64> = run
        .sessions
        .iter()
        .filter_map(|session| Some(candidates.get(session.path.as_ref()?).copied().unwrap_or(session.ms)))
        .collect();
    if chosen.is_empty() {
        return;
    }
    let chosen = stats::median(&chosen);
    run.metrics.insert(REGRET.to_owned(), chosen / best);
    if let Some(direct) = candidates.get(DIRECT) {
        run.metrics.insert(OVER_DIRECT.to_owned(), direct / chosen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::collect::results::SessionRun;
    use crate::experiment::examples_for_tests::TEXT;

    fn experiment() -> Experiment {
        let treatment = |name: &str, path: &str| {
            format!("[treatment.{name}]\nprogram = \"ekiden\"\nrelays = [\"server\"]\npath = {path}\n")
        };
        let three = [("direct", "[\"direct\"]"), ("dante", "[\"server\"]"), ("haproxy", "\"auto\"")];
        let own = three.map(|(name, path)| treatment(name, path)).concat();
        let (head, rest) = TEXT.split_once("[treatment.direct]").unwrap();
        let (_, tail) = rest.split_once("[experiment]").unwrap();
        Experiment::parse("x", &format!("{head}{own}[experiment]{tail}")).unwrap()
    }

    fn run(treatment: &str, ms: f64, paths: &[&str]) -> Run {
        let levels = [("delay", "short"), ("protocol", "http")].map(|(f, l)| (f.to_owned(), l.to_owned()));
        let session = |path: &&str| SessionRun { ms, path: Some((*path).to_owned()), ..SessionRun::default() };
        Run {
            levels: levels.into(),
            treatment: treatment.into(),
            metrics: [(COMPLETION.to_owned(), ms)].into(),
            sessions: paths.iter().map(session).collect(),
            ..Run::default()
        }
    }

    #[test]
    fn regret_compares_the_choice_with_the_candidates() {
        let runs = [
            run("direct", 100.0, &["direct"]),
            run("direct", 120.0, &["direct"]),
            run("dante", 50.0, &["server"]),
            run("haproxy", 400.0, &["direct", "direct", "server"]),
            run("haproxy", 400.0, &["server"]),
            run("haproxy", 55.0, &["server-other"]),
            Run { invalid: Some("it died".into()), ..run("haproxy", 55.0, &["direct"]) },
        ];
        let judged = with_regret(&experiment(), &runs);
        let values = |key: &str| judged[3..].iter().map(|run| run.metrics.get(key).copied()).collect::<Vec<_>>();
        assert_eq!(values(REGRET), [Some(2.2), Some(1.0), Some(1.1), None]);
        assert_eq!(values(OVER_DIRECT), [Some(1.0), Some(2.2), Some(2.0), None]);
        assert!(!judged[0].metrics.contains_key(REGRET), "a fixed path has no regret");
    }
}
