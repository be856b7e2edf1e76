//! Whether the links were what the file says while a run was made.

use std::time::Duration;

use crate::emulator::DirectionReport;
use crate::ledger::DropCause;
use crate::warnings::Warning;

/// Why a run whose links did this does not count, if it does not.
pub(super) fn invalid_reason(links: &[DirectionReport], has_events: bool, limit: Duration) -> Option<String> {
    links.iter().find_map(|link| {
        let direction = format!("{} ({} → {})", link.link, link.from, link.to);
        if link.hidden > 0 {
            return Some(format!("the kernel dropped {} packets around the emulator on {direction}", link.hidden));
        }
        if let Some(lost) = link.dropped.get(&DropCause::Memory).filter(|lost| **lost > 0) {
            return Some(format!("the emulator had no memory for {lost} packets on {direction}"));
        }
        if !has_events && link.dropped.get(&DropCause::Down).is_some_and(|lost| *lost > 0) {
            return Some(format!("{direction} was down"));
        }
        let late = Duration::from_nanos(link.lateness.quantile(0.99));
        (late > limit).then(|| Warning::EmulatorLate { direction, late, limit }.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::LatenessHistogram;

    fn link(hidden: u64, late: u64) -> DirectionReport {
        let lateness = LatenessHistogram { bounds: vec![late, u64::MAX], counts: vec![100, 0], max: late };
        DirectionReport { link: "wan".into(), from: "a".into(), to: "b".into(), hidden, lateness, ..Default::default() }
    }

    #[test]
    fn a_run_is_invalid_if_the_emulator_was_not_faithful() {
        let limit = Duration::from_millis(1);
        assert_eq!(invalid_reason(&[link(0, 900_000)], false, limit), None);
        let late = invalid_reason(&[link(0, 0), link(0, 2_000_000)], false, limit).unwrap();
        assert!(late.starts_with("the emulator fell behind on wan (a → b)"), "{late}");
        let hidden = invalid_reason(&[link(3, 0)], false, limit).unwrap();
        assert_eq!(hidden, "the kernel dropped 3 packets around the emulator on wan (a → b)");
    }

    #[test]
    fn a_link_that_was_down_is_meant_only_if_there_are_events() {
        let mut down = link(0, 0);
        down.dropped.insert(DropCause::Down, 1);
        let limit = Duration::from_millis(1);
        assert_eq!(invalid_reason(&[down.clone()], false, limit).as_deref(), Some("wan (a → b) was down"));
        assert_eq!(invalid_reason(&[down], true, limit), None);
    }
}
