//! Checks the rate and the pattern of a link's loss against the model in the lab file, and that no packet is lost or
//! damaged elsewhere in the lab.

use super::probe::ProbeSeries;
use super::row::Finding;
use crate::stats::{Z_99_9, chi_square, lag1_correlation, normal_cdf, wilson};
use ekiden_emulator::conditions::Loss;

/// Significance level. A smaller p-value fails the check.
const SIGNIFICANCE_LEVEL: f64 = 0.001;

/// The parameters of a Gilbert-Elliott model.
#[derive(Debug, Clone, Copy)]
pub struct GilbertElliottParams {
    to_bad: f64,
    to_good: f64,
    p_good: f64,
    p_bad: f64,
}

/// Checks an event of probability `p` that happened to `count` of `n` packets: the 99.9 % interval must contain `p`.
pub fn check_probability(event: &str, count: usize, n: usize, p: f64) -> Finding {
    let (low, high) = wilson(count as u64, n as u64, Z_99_9);
    Finding {
        wanted: format!("{event}: Wilson 99.9 % interval contains {p} (N·p = {:.0})", n as f64 * p),
        measured: format!("{low:.5} … {high:.5} ({count} of {n})"),
        pass: low <= p && p <= high && n > 0,
    }
}

/// Returns the findings about a loss model, each with the name of its property.
pub fn check_loss(model: &Loss, series: &ProbeSeries) -> Vec<(&'static str, Finding)> {
    let lost = series.loss_flags();
    match model {
        Loss::Bernoulli { p, .. } => vec![
            ("loss rate", check_probability("lost", count_lost(&lost), lost.len(), *p)),
            ("loss: run lengths", check_run_lengths(&lost, *p)),
            ("loss: neighbours", check_independence(&lost)),
            ("loss: position in superpacket", check_segment_positions(series, &lost)),
        ],
        Loss::GilbertElliott { to_bad, to_good, p_good, p_bad, .. } => {
            let model = GilbertElliottParams { to_bad: *to_bad, to_good: *to_good, p_good: *p_good, p_bad: *p_bad };
            let mut rows = vec![("Gilbert–Elliott: occupancy", check_bad_state_share(&lost, model))];
            if *p_good == 0.0 && *p_bad == 1.0 {
                rows.push(("Gilbert–Elliott: mean burst", check_mean_burst(&lost, *to_good)));
            }
            rows
        }
        Loss::Pattern { every, lost: positions, .. } => vec![("loss pattern", check_pattern(&lost, *every, positions))],
    }
}

fn count_lost(lost: &[bool]) -> usize {
    lost.iter().filter(|lost| **lost).count()
}

fn significance_finding(statistic: &str, p: f64, n: usize) -> Finding {
    Finding {
        wanted: format!("{statistic}: p > {SIGNIFICANCE_LEVEL}"),
        measured: format!("p = {p:.4} ({n} lost)"),
        pass: p > SIGNIFICANCE_LEVEL && n > 0,
    }
}

/// Checks that the numbers of packets between losses follow the geometric distribution.
fn check_run_lengths(lost: &[bool], p: f64) -> Finding {
    let runs: Vec<u64> =
        lost.split_inclusive(|lost| *lost).filter(|run| run.ends_with(&[true])).map(run_length).collect();
    // Classes of equal probability, with 10 runs in each or more; fewer classes if runs are short.
    let classes = (runs.len() / 10).clamp(2, 20);
    let edge = |class: usize| ((1.0 - class as f64 / classes as f64).ln() / (1.0 - p).ln()).round() as u64;
    let mut edges: Vec<u64> = (1..classes).map(edge).filter(|edge| *edge > 0).collect();
    edges.dedup();
    let mut observed = vec![0; edges.len() + 1];
    for run in &runs {
        observed[edges.partition_point(|edge| edge <= run)] += 1;
    }
    let below = |edge: u64| 1.0 - (1.0 - p).powf(edge as f64);
    let bounds: Vec<f64> =
        std::iter::once(0.0).chain(edges.iter().map(|edge| below(*edge))).chain(std::iter::once(1.0)).collect();
    let expected: Vec<f64> = bounds.windows(2).map(|pair| (pair[1] - pair[0]) * runs.len() as f64).collect();
    significance_finding("chi-square of the run lengths", chi_square(&observed, &expected), runs.len())
}

fn run_length(run: &[bool]) -> u64 {
    run.len() as u64 - 1
}

/// Checks that successive losses are uncorrelated.
fn check_independence(lost: &[bool]) -> Finding {
    let values: Vec<f64> = lost.iter().map(|lost| f64::from(u8::from(*lost))).collect();
    let z = lag1_correlation(&values).abs() * (values.len() as f64).sqrt();
    significance_finding("lag-1 correlation", 2.0 * (1.0 - normal_cdf(z)), count_lost(lost))
}

/// Checks that losses are uniform over the positions in a superpacket.
fn check_segment_positions(series: &ProbeSeries, lost: &[bool]) -> Finding {
    let position_count = series.sent.iter().map(|sent| usize::from(sent.segment.1)).max().unwrap_or(1);
    let mut counts = vec![0_u64; position_count];
    for (sent, _) in series.sent.iter().zip(lost).filter(|(_, lost)| **lost) {
        counts[usize::from(sent.segment.0)] += 1;
    }
    let expected = vec![count_lost(lost) as f64 / position_count as f64; position_count];
    significance_finding(
        &format!("chi-square over {position_count} places"),
        chi_square(&counts, &expected),
        count_lost(lost),
    )
}

/// Checks the share of lost packets. This is the share of the bad state if the good state loses no packet and the bad
/// state every packet. The variance is that of a two-state Markov chain.
fn check_bad_state_share(lost: &[bool], model: GilbertElliottParams) -> Finding {
    let bad = model.to_bad / (model.to_bad + model.to_good);
    let p = bad * model.p_bad + (1.0 - bad) * model.p_good;
    let memory = 1.0 - model.to_bad - model.to_good;
    let covariance = 2.0 * bad * (1.0 - bad) * (model.p_bad - model.p_good).powi(2) * memory / (1.0 - memory);
    let n = lost.len() as f64;
    let half = Z_99_9 * ((p * (1.0 - p) + covariance) / n).sqrt();
    let share = count_lost(lost) as f64 / n;
    Finding {
        wanted: format!("lost in the long run: 99.9 % interval contains {p:.5}"),
        measured: format!("{:.5} … {:.5} ({} of {})", share - half, share + half, count_lost(lost), lost.len()),
        pass: (share - p).abs() <= half,
    }
}

/// Checks that the mean length of a burst, which is geometrically distributed, is that of the bad state.
fn check_mean_burst(lost: &[bool], to_good: f64) -> Finding {
    let bursts: Vec<usize> = lost.split(|lost| !lost).map(<[bool]>::len).filter(|length| *length > 0).collect();
    let n = bursts.len() as f64;
    let mean = bursts.iter().sum::<usize>() as f64 / n;
    let half = Z_99_9 * (1.0 - to_good).sqrt() / to_good / n.sqrt();
    let expected = 1.0 / to_good;
    Finding {
        wanted: format!("mean burst: 99.9 % interval contains {expected:.3}"),
        measured: format!("{:.3} … {:.3} ({} bursts)", mean - half, mean + half, bursts.len()),
        pass: (mean - expected).abs() <= half,
    }
}

/// Checks that exactly the packets of the pattern are missing, for some phase of the pattern.
fn check_pattern(lost: &[bool], period: u64, positions: &[u64]) -> Finding {
    let agrees = |shift: u64| {
        let mut numbered = (shift..).zip(lost);
        numbered.all(|(number, lost)| positions.contains(&(number % period)) == *lost)
    };
    Finding {
        wanted: format!("packets {positions:?} of every {period} lost and no others"),
        measured: format!("{} of {} lost", count_lost(lost), lost.len()),
        pass: lost.len() as u64 >= period && (0..period).any(agrees),
    }
}

/// Checks that no packet was lost or damaged outside of the links. `hosts` counts drops and checksum errors by host and
/// cause; `emulator_drops` counts packets lost between the kernel and the emulator.
pub fn check_hidden_drops(hosts: &[(String, u64)], emulator_drops: u64) -> Finding {
    let named: Vec<String> =
        hosts.iter().filter(|(_, count)| *count > 0).map(|(cause, count)| format!("{cause} {count}")).collect();
    let host_drops: u64 = hosts.iter().map(|(_, count)| count).sum();
    let names = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
    Finding {
        wanted: "interface drops, checksum errors; packet socket drops: 0".to_owned(),
        measured: format!("{host_drops}{names}; {emulator_drops}"),
        pass: host_drops == 0 && emulator_drops == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::probe::SentProbe;
    use super::*;
    use ekiden_emulator::rng::SeededRng;

    const N: usize = 150_000;

    fn bernoulli(p: f64) -> Vec<bool> {
        let rng = SeededRng::new(11);
        (0..N as u64).map(|number| rng.bernoulli(number, p)).collect()
    }

    fn series(lost: &[bool], places: u16) -> ProbeSeries {
        let segment = |number: usize| ((number % usize::from(places)) as u16, places);
        let sent = (0..lost.len()).map(|i| SentProbe { segment: segment(i), ..SentProbe::for_test(0, 48) });
        ProbeSeries::for_test(sent, (0..lost.len()).filter(|i| !lost[*i]).map(|i| (i, 9)))
    }

    fn passes(model: &str, lost: &[bool]) -> Vec<bool> {
        let model = toml::from_str(model).unwrap();
        check_loss(&model, &series(lost, 30)).iter().map(|(_, finding)| finding.pass).collect()
    }

    const ONE_PERCENT: &str = "model = 'bernoulli'\np = 0.01";

    #[test]
    fn independent_losses_pass_every_row() {
        assert_eq!(passes(ONE_PERCENT, &bernoulli(0.01)), [true; 4]);
        assert_eq!(passes("model = 'bernoulli'\np = 0.3", &bernoulli(0.3)), [true; 4]);
    }

    #[test]
    fn loss_rate_11_percent_too_high_fails() {
        assert!(!passes(ONE_PERCENT, &bernoulli(0.0111))[0]);
        assert!(!check_probability("lost", 0, 0, 0.0).pass, "no packets are no evidence");
    }

    #[test]
    fn losses_in_pairs_are_not_independent() {
        let chance = bernoulli(0.005);
        let pairs: Vec<bool> = (0..N).map(|i| chance[i] || (i > 0 && chance[i - 1])).collect();
        assert_eq!(passes(ONE_PERCENT, &pairs)[1..3], [false, false]);
    }

    #[test]
    fn losses_at_regular_distances_are_not_independent() {
        let regular: Vec<bool> = (0..N).map(|i| i % 100 == 0).collect();
        assert_eq!(passes(ONE_PERCENT, &regular)[..2], [true, false]);
    }

    #[test]
    fn losses_biased_to_the_superpacket_head_fail() {
        let rng = SeededRng::new(5);
        let p = |i: usize| if i.is_multiple_of(30) { 0.02 } else { 0.01 };
        let lost: Vec<bool> = (0..N).map(|i| rng.bernoulli(i as u64, p(i))).collect();
        assert!(!passes(ONE_PERCENT, &lost)[3]);
    }

    fn two_states(to_bad: f64, to_good: f64) -> Vec<bool> {
        let rng = SeededRng::new(8);
        let mut bad = false;
        let step = |number| {
            let lost = bad;
            bad ^= rng.bernoulli(number, if bad { to_good } else { to_bad });
            lost
        };
        (0..N as u64).map(step).collect()
    }

    #[test]
    fn gilbert_elliott_loss_rate_and_burst_length_are_checked() {
        let model = "model = 'gilbert-elliott'\nto_bad = 0.005\nto_good = 0.25";
        assert_eq!(passes(model, &two_states(0.005, 0.25)), [true, true]);
        assert_eq!(passes(model, &two_states(0.005, 0.15)), [false, false]);
        assert!(!passes(model, &two_states(0.007, 0.25))[0]);
        assert_eq!(
            passes(model, &bernoulli(0.005 / 0.255)),
            [true, false],
            "the loss rate is correct, but losses are not in bursts"
        );
    }

    #[test]
    fn pattern_passes_at_any_phase_and_fails_at_a_deviation() {
        let model = "model = 'pattern'\nevery = 50\nlost = [3, 4]";
        let mut lost: Vec<bool> = (17..17 + 500).map(|i| matches!(i % 50, 3 | 4)).collect();
        assert_eq!(passes(model, &lost), [true]);
        lost[333] ^= true;
        assert_eq!(passes(model, &lost), [false]);
    }

    #[test]
    fn one_hidden_drop_fails_and_its_counter_is_named() {
        assert!(check_hidden_drops(&[], 0).pass);
        assert!(!check_hidden_drops(&[], 1).pass);
        let dropped = check_hidden_drops(&[("client: wan rx_dropped".to_owned(), 2)], 0);
        assert!(!dropped.pass && dropped.measured.contains("client: wan rx_dropped 2"), "{dropped:?}");
    }
}
