use super::*;

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn told() -> DirectionEstimate {
    let figures = EstimateSnapshot {
        rtt: Some(Duration::from_micros(38_600)),
        loss: Some(0.0015),
        rate: Some(1_250_000.0),
        at_least: Some(1_300_000.0),
        window: Some(65_536),
        segments: 1234.0,
    };
    DirectionEstimate { snapshot: figures, age: Duration::from_millis(2_500) }
}

fn examples() -> Vec<ReportMessage> {
    let relay = SectionReport {
        subject: Subject::Relay(PublicKey([7; 32])),
        sending: told(),
        receiving: DirectionEstimate::default(),
    };
    let caller = SectionReport { subject: Subject::Caller(PublicKey([8; 32])), ..relay };
    let only_rtt = DirectionEstimate {
        snapshot: EstimateSnapshot { loss: None, rate: None, at_least: None, ..told().snapshot },
        ..told()
    };
    let targets =
        |text| SectionReport { subject: Subject::Targets(prefix(text)), sending: only_rtt, receiving: told() };
    let both = vec![prefix("192.0.2.0/24"), prefix("2001:db8:1::/48")];
    vec![
        ReportMessage::Query(ReportQuery::default()),
        ReportMessage::Query(ReportQuery { neighbours: true, prefixes: both }),
        ReportMessage::Reply(Vec::new()),
        ReportMessage::Reply(vec![relay, caller, targets("192.0.2.0/24"), targets("2001:db8:1::/48")]),
        ReportMessage::Probe(ProbeTrain { bytes: 0, reply_bytes: 0 }),
        ReportMessage::Probe(ProbeTrain { bytes: MAX_PROBE, reply_bytes: MAX_PROBE }),
    ]
}

#[test]
fn what_was_written_is_read() {
    for report in examples() {
        let bytes = report.write();
        assert!(bytes.len() <= MAX_RECORD);
        assert_eq!(ReportMessage::read(&bytes), Ok(report));
    }
}

#[test]
fn what_is_cut_short_or_too_long_is_none() {
    for report in examples().iter().filter(|report| !matches!(report, ReportMessage::Probe(_))) {
        let mut bytes = report.write();
        assert!((0..bytes.len()).all(|end| ReportMessage::read(&bytes[..end]).is_err()), "{report:?}");
        bytes.push(0);
        assert!(ReportMessage::read(&bytes).is_err(), "{report:?}");
    }
}

#[test]
fn other_forms_are_refused() {
    for bytes in [
        &[9][..],
        &[QUERY, 2, 0],
        &[QUERY, 0, 65],
        &[QUERY, 0, 1, 5, 1, 2, 3],
        // An IPv4 network within IPv6.
        &[QUERY, 0, 1, IPV6, 0, 0, 0, 0, 0, 0, 0],
        &[REPLY, 1, RELAY],
        &[PROBE, 0xff, 0xff],
        &[PROBE, 0, 0, 1],
        &[PROBE, 0],
    ] {
        assert!(ReportMessage::read(bytes).is_err(), "{bytes:?}");
    }
    assert_eq!(ReportMessage::read(&vec![PROBE; MAX_RECORD + 1]), Err(WireError::TooLarge));
    let entry = SectionReport { subject: Subject::Relay(PublicKey([7; 32])), sending: told(), receiving: told() };
    let mut unknown_flag = ReportMessage::Reply(vec![entry]).write();
    unknown_flag[35] |= 0x20;
    assert!(ReportMessage::read(&unknown_flag).is_err());
}

#[test]
fn what_is_beyond_a_bound_is_left_out() {
    let many = ReportQuery { neighbours: false, prefixes: vec![prefix("192.0.2.0/24"); MAX_ENTRIES + 1] };
    let Ok(ReportMessage::Query(read)) = ReportMessage::read(&ReportMessage::Query(many).write()) else {
        panic!("no question")
    };
    assert_eq!(read.prefixes.len(), MAX_ENTRIES);
    let odd = EstimateSnapshot {
        loss: Some(f64::NAN),
        rate: Some(f64::INFINITY),
        segments: -1.0,
        ..EstimateSnapshot::default()
    };
    let told = DirectionEstimate { snapshot: odd, age: Duration::MAX };
    let entry = SectionReport { subject: Subject::Relay(PublicKey([7; 32])), sending: told, receiving: told };
    let Ok(ReportMessage::Reply(read)) = ReportMessage::read(&ReportMessage::Reply(vec![entry]).write()) else {
        panic!("no answer")
    };
    assert_eq!((read[0].sending.snapshot.loss, read[0].sending.snapshot.segments), (Some(0.0), 0.0));
    assert!(read[0].sending.snapshot.rate.unwrap().is_finite());
}
