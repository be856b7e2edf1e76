//! Reads conditions from a table, and validates their values.

use toml::Table;

use crate::topology::file::errors::{KeySpec, LabFileErrors};
use crate::topology::file::remove_disabled_keys;
use ekiden_emulator::conditions::{Conditions, Loss, QueueKind};
use ekiden_emulator::queue::kind::QueueError;

/// Keys of a direction, with the expected values.
pub const CONDITION_KEYS: &[KeySpec] = &[
    ("down", "true or false"),
    ("access_rate", EXPECTED_RATE),
    ("rate", EXPECTED_RATE),
    ("trace", r#"a delivery trace: a file like "lte.trace", or its times in ms in ascending order"#),
    ("count", r#""l3", "l2" or "wire""#),
    ("queue", QueueKind::EXPECTED),
    ("delay", r#"a time like "50ms", in whole microseconds"#),
    ("jitter", r#"a table like { distribution = "normal", scale = "5ms" }"#),
    ("loss", r#"a table like { model = "bernoulli", p = 0.01 }; models are bernoulli, gilbert-elliott, pattern"#),
    ("reorder", r#"a table like { p = 0.01, by = "10ms" }"#),
    ("duplicate", "a table like { p = 0.01 }"),
];

const EXPECTED_RATE: &str = r#"a rate like "200Mbit/s" or "1Gbit/s""#;

/// Reads one direction, and reports errors.
pub fn read_conditions(at: &str, table: &Table, errors: &mut LabFileErrors) -> Option<Conditions> {
    let table = remove_disabled_keys(table.clone());
    let conditions: Conditions = errors.read_table(at, &table, CONDITION_KEYS)?;
    let before = errors.error_count();
    let mut check = ConditionsValidator { path: at, table: &table, errors };
    if conditions.rate.is_some() && conditions.trace.is_some() {
        check.errors.push_at_key(
            format!("{at}.trace"),
            "expected a rate or a trace, not both; rate = false removes an inherited rate",
        );
    }
    if let Some(loss) = &conditions.loss {
        check.loss(loss);
    }
    if let Some(queue) = &conditions.queue {
        check.queue(queue);
    }
    check.probability("reorder", "p", conditions.reorder.map_or(0.0, |reorder| reorder.p));
    check.probability("duplicate", "p", conditions.duplicate.map_or(0.0, |duplicate| duplicate.p));
    (errors.error_count() == before).then_some(conditions)
}

struct ConditionsValidator<'a> {
    path: &'a str,
    table: &'a Table,
    errors: &'a mut LabFileErrors,
}

impl ConditionsValidator<'_> {
    /// Reports a problem of the key `inner` of the table `outer`.
    fn report(&mut self, outer: &str, inner: &str, problem: &str) {
        let key = format!("{}.{outer}.{inner}", self.path);
        match self.table.get(outer).and_then(|table| table.get(inner)) {
            Some(value) => self.errors.push(key, value, problem),
            None => self.errors.push_at_key(key, problem),
        }
    }

    fn probability(&mut self, outer: &str, inner: &str, p: f64) {
        if !(0.0..=1.0).contains(&p) {
            self.report(outer, inner, "expected a probability between 0 and 1");
        }
    }

    fn loss(&mut self, loss: &Loss) {
        match loss {
            Loss::Bernoulli { p, .. } => self.probability("loss", "p", *p),
            Loss::GilbertElliott { to_bad, to_good, p_good, p_bad, .. } => {
                let all = [("to_bad", to_bad), ("to_good", to_good), ("p_good", p_good), ("p_bad", p_bad)];
                all.into_iter().for_each(|(name, p)| self.probability("loss", name, *p));
            }
            Loss::Pattern { every, lost, .. } => {
                if *every == 0 {
                    self.report("loss", "every", "expected at least 1");
                } else if lost.iter().any(|packet| packet >= every) {
                    self.report("loss", "lost", &format!("expected numbers from 0 to {}", every - 1));
                }
            }
        }
    }

    fn queue(&mut self, queue: &QueueKind) {
        for QueueError { key, problem } in queue.validate() {
            match (key, self.table.get("queue")) {
                (Some(key), _) => self.report("queue", key, &problem),
                (None, Some(value)) => self.errors.push(format!("{}.queue", self.path), value, problem),
                (None, None) => self.errors.push_at_key(format!("{}.queue", self.path), problem),
            }
        }
    }
}
