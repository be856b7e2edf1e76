//! How busy the processors are (proc_stat(5)).

/// A reading of all processors together since the system started, in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    busy: u64,
    all: u64,
}

impl Reading {
    /// Now. `None` where there is no such file.
    #[must_use]
    pub fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let ticks: Vec<u64> =
            text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map_while(|t| t.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal, and guests, which user and nice have already. What another
        // machine took (steal) was not there for us: it counts as busy.
        let all = ticks.iter().take(8).sum();
        let idle: u64 = ticks.get(3..5)?.iter().sum();
        Some(Self { busy: all - idle, all })
    }

    /// The share that was busy from `before` until now, from 0 to 1.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a share")]
    pub fn busy_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        if all == 0 { 0.0 } else { self.busy.saturating_sub(before.busy) as f64 / all as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_idle_and_steal_is_busy() {
        let before = Reading::parse("cpu  10 0 0 100 0 0 0 0 0 0\ncpu0 1").unwrap();
        let after = Reading::parse("cpu  20 0 10 140 20 0 10 10 5 0\n").unwrap();
        assert!((after.busy_since(before) - 0.4).abs() < 1e-9);
        assert_eq!(Reading::parse("intr 5"), None);
    }
}
