use super::*;

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn told() -> Told {
    let figures = Figures {
        rtt: Some(Duration::from_micros(38_600)),
        loss: Some(0.0015),
        rate: Some(1_250_000.0),
        at_least: Some(1_300_000.0),
        window: Some(65_536),
        segments: 1234.0,
    };
    Told { figures, age: Duration::from_millis(2_500) }
}

fn examples() -> Vec<Report> {
    let relay = Entry { subject: Subject::Relay(PublicKey([7; 32])), sending: told(), receiving: Told::default() };
    let caller = Entry { subject: Subject::Caller(PublicKey([8; 32])), ..relay };
    let only_rtt = Told { figures: Figures { loss: None, rate: None, at_least: None, ..told().figures }, ..told() };
    let targets = |text| Entry { subject: Subject::Targets(prefix(text)), sending: only_rtt, receiving: told() };
    let both = vec![prefix("192.0.2.0/24"), prefix("2001:db8:1::/48")];
    vec![
        Report::Ask(Ask::default()),
        Report::Ask(Ask { neighbours: true, prefixes: both }),
        Report::Tell(Vec::new()),
        Report::Tell(vec![relay, caller, targets("192.0.2.0/24"), targets("2001:db8:1::/48")]),
        Report::Look(Look { bytes: 0, back: 0 }),
        Report::Look(Look { bytes: MOST_LOOK, back: MOST_LOOK }),
    ]
}

#[test]
fn what_was_written_is_read() {
    for report in examples() {
        let bytes = report.write();
        assert!(bytes.len() <= LONGEST);
        assert_eq!(Report::read(&bytes), Ok(report));
    }
}

#[test]
fn what_is_cut_short_or_too_long_is_none() {
    for report in examples().iter().filter(|report| !matches!(report, Report::Look(_))) {
        let mut bytes = report.write();
        assert!((0..bytes.len()).all(|end| Report::read(&bytes[..end]).is_err()), "{report:?}");
        bytes.push(0);
        assert!(Report::read(&bytes).is_err(), "{report:?}");
    }
}

#[test]
fn other_forms_are_refused() {
    for bytes in [
        &[9][..],
        &[ASK, 2, 0],
        &[ASK, 0, 65],
        &[ASK, 0, 1, 5, 1, 2, 3],
        // An IPv4 network within IPv6.
        &[ASK, 0, 1, IPV6, 0, 0, 0, 0, 0, 0, 0],
        &[TELL, 1, RELAY],
        &[LOOK, 0xff, 0xff],
        &[LOOK, 0, 0, 1],
        &[LOOK, 0],
    ] {
        assert!(Report::read(bytes).is_err(), "{bytes:?}");
    }
    assert_eq!(Report::read(&vec![LOOK; LONGEST + 1]), Err(WireError::TooLarge));
    let entry = Entry { subject: Subject::Relay(PublicKey([7; 32])), sending: told(), receiving: told() };
    let mut unknown_flag = Report::Tell(vec![entry]).write();
    unknown_flag[35] |= 0x20;
    assert!(Report::read(&unknown_flag).is_err());
}

#[test]
fn what_is_beyond_a_bound_is_left_out() {
    let many = Ask { neighbours: false, prefixes: vec![prefix("192.0.2.0/24"); MOST + 1] };
    let Ok(Report::Ask(read)) = Report::read(&Report::Ask(many).write()) else { panic!("no question") };
    assert_eq!(read.prefixes.len(), MOST);
    let odd = Figures { loss: Some(f64::NAN), rate: Some(f64::INFINITY), segments: -1.0, ..Figures::default() };
    let told = Told { figures: odd, age: Duration::MAX };
    let entry = Entry { subject: Subject::Relay(PublicKey([7; 32])), sending: told, receiving: told };
    let Ok(Report::Tell(read)) = Report::read(&Report::Tell(vec![entry]).write()) else { panic!("no answer") };
    assert_eq!((read[0].sending.figures.loss, read[0].sending.figures.segments), (Some(0.0), 0.0));
    assert!(read[0].sending.figures.rate.unwrap().is_finite());
}
