//! What relays tell each other of their sections. What reads has no other form, and is within its bounds.
#![no_main]

use ekiden_proto::wire::section::report::{LONGEST, MOST, MOST_LOOK, Report};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(report) = Report::read(bytes) else { return };
    assert!(bytes.len() <= LONGEST);
    assert_eq!(report.write(), bytes);
    match report {
        Report::Ask(ask) => assert!(ask.prefixes.len() <= MOST),
        Report::Tell(entries) => {
            assert!(entries.len() <= MOST);
            for told in entries.iter().flat_map(|entry| [entry.sending, entry.receiving]) {
                let figures = told.figures;
                assert!(figures.loss.is_none_or(|loss| (0.0..=1.0).contains(&loss)));
                assert!(
                    [figures.rate, figures.at_least].into_iter().flatten().all(|rate| rate.is_finite() && rate >= 0.0)
                );
            }
        }
        Report::Look(look) => assert!(look.back <= MOST_LOOK && look.bytes <= MOST_LOOK),
    }
});
