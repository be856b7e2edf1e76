//! Conditions out of a table, and whether they make sense.

use ekiden_proto::aqm::history::LONGEST;
use toml::{Table, Value};

use crate::conditions::{Conditions, DynamicSettings, Limit, Loss, QueueKind, RedSettings};
use crate::topology::file::inherit::without_absent;
use crate::topology::file::mistakes::{Expected, Mistakes};

/// Every key of a direction, and what is expected there.
pub const KEYS: &[Expected] = &[
    ("down", "true or false"),
    ("access_rate", RATE),
    ("rate", RATE),
    ("count", r#""l3", "l2" or "wire""#),
    ("queue", QUEUE),
    ("delay", r#"a time like "50ms""#),
    ("jitter", r#"a table like { distribution = "normal", scale = "5ms" }"#),
    ("loss", r#"a table like { model = "bernoulli", p = 0.01 }; models are bernoulli, gilbert-elliott, pattern"#),
    ("reorder", r#"a table like { p = 0.01, by = "10ms" }"#),
    ("duplicate", "a table like { p = 0.01 }"),
];

const QUEUE: &str = r#"a table like { kind = "tail-drop", limit = "64pkt" }; kinds are tail-drop, red, static-priority, dynamic-priority, auto, codel, fq-codel"#;
const RATE: &str = r#"a rate like "200Mbit/s" or "1Gbit/s""#;

/// Reads one direction; notes what is wrong.
pub fn read(at: &str, table: &Table, mistakes: &mut Mistakes) -> Option<Conditions> {
    let table = without_absent(table.clone());
    let conditions: Conditions = mistakes.read_table(at, &table, KEYS)?;
    let before = mistakes.count();
    let mut check = Check { at, table: &table, mistakes };
    if let Some(loss) = &conditions.loss {
        check.loss(loss);
    }
    if let Some(queue) = &conditions.queue {
        check.queue(queue);
    }
    check.probability("reorder", "p", conditions.reorder.map_or(0.0, |reorder| reorder.p));
    check.probability("duplicate", "p", conditions.duplicate.map_or(0.0, |duplicate| duplicate.p));
    (mistakes.count() == before).then_some(conditions)
}

struct Check<'a> {
    at: &'a str,
    table: &'a Table,
    mistakes: &'a mut Mistakes,
}

impl Check<'_> {
    /// Notes what is wrong with `inner` of the table `outer`.
    fn note(&mut self, outer: &str, inner: &str, problem: &str) {
        let key = format!("{}.{outer}.{inner}", self.at);
        match self.table.get(outer).and_then(|table| table.get(inner)) {
            Some(value) => self.mistakes.note(key, value, problem),
            None => self.mistakes.note_at(key, problem),
        }
    }

    fn probability(&mut self, outer: &str, inner: &str, p: f64) {
        if !(0.0..=1.0).contains(&p) {
            self.note(outer, inner, "expected a probability between 0 and 1");
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
                    self.note("loss", "every", "expected at least 1");
                } else if lost.iter().any(|packet| packet >= every) {
                    self.note("loss", "lost", &format!("expected numbers from 0 to {}", every - 1));
                }
            }
        }
    }

    fn queue(&mut self, queue: &QueueKind) {
        let (limit, positive) = match queue {
            QueueKind::TailDrop { limit } => (limit, &[][..]),
            QueueKind::Auto(auto) => (&auto.limit, &[][..]),
            QueueKind::Codel(codel) => (&codel.limit, &[][..]),
            QueueKind::FqCodel(fair) => (&fair.limit, &[("flows", fair.flows as u64), ("quantum", fair.quantum.0)][..]),
            QueueKind::Red(red) => {
                self.red(red);
                (&red.limit, &[][..])
            }
            QueueKind::StaticPriority(priority) => {
                self.red(&priority.red());
                self.times(priority.n);
                (&priority.limit, &[][..])
            }
            QueueKind::DynamicPriority(priority) => {
                self.red(&priority.red());
                self.times(priority.n);
                self.history(priority);
                (&priority.limit, &[][..])
            }
        };
        if matches!(limit, Limit::Packets(0) | Limit::Bytes(0)) {
            self.note("queue", "limit", "expected room for at least one packet");
        }
        for (name, _) in positive.iter().filter(|(_, value)| *value == 0) {
            self.note("queue", name, "expected at least 1");
        }
    }

    /// How many times as often the heavy are dropped.
    fn times(&mut self, n: f64) {
        if !(1.0..=10_000.0).contains(&n) {
            self.note("queue", "n", "expected a number from 1 to 10000");
        }
    }

    fn history(&mut self, priority: &DynamicSettings) {
        for (name, value) in [("rec_int", priority.rec_int), ("sta_int", priority.sta_int)] {
            if value == 0 {
                self.note("queue", name, "expected at least 1");
            }
        }
        if !(1..=LONGEST).contains(&(priority.hist_len as usize)) {
            self.note("queue", "hist_len", &format!("expected from 1 to {LONGEST}"));
        }
    }

    fn red(&mut self, red: &RedSettings) {
        self.probability("queue", "p", red.p);
        if !(1e-7..=1.0).contains(&red.wq) {
            self.note("queue", "wq", "expected a weight from 0.0000001 to 1");
        }
        let (min, max) = match (red.limit, red.min, red.max) {
            (Limit::Packets(_), Limit::Packets(min), Limit::Packets(max)) => (min, max),
            (Limit::Bytes(_), Limit::Bytes(min), Limit::Bytes(max)) => (min, max),
            _ => {
                let all = self.table.get("queue").cloned().unwrap_or(Value::Boolean(false));
                self.mistakes.note(
                    format!("{}.queue", self.at),
                    &all,
                    "expected limit, min and max all in packets or all in bytes",
                );
                return;
            }
        };
        if min >= max {
            self.note("queue", "min", &format!("expected less than max, {}", red.max));
        }
    }
}
