//! Reports that relays exchange on their sections: a message has exactly one encoding, and its values are within
//! bounds.
#![no_main]

use ekiden_proto::wire::section::report::{MAX_ENTRIES, MAX_PROBE, MAX_RECORD, ReportMessage};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(report) = ReportMessage::read(bytes) else { return };
    assert!(bytes.len() <= MAX_RECORD);
    assert_eq!(report.write(), bytes);
    match report {
        ReportMessage::Query(query) => assert!(query.prefixes.len() <= MAX_ENTRIES),
        ReportMessage::Reply(entries) => {
            assert!(entries.len() <= MAX_ENTRIES);
            for estimate in entries.iter().flat_map(|entry| [entry.sending, entry.receiving]) {
                let figures = estimate.snapshot;
                assert!(figures.loss.is_none_or(|loss| (0.0..=1.0).contains(&loss)));
                assert!(
                    [figures.rate, figures.at_least].into_iter().flatten().all(|rate| rate.is_finite() && rate >= 0.0)
                );
            }
        }
        ReportMessage::Probe(probe) => assert!(probe.reply_bytes <= MAX_PROBE && probe.bytes <= MAX_PROBE),
    }
});
