use std::time::Duration;

use super::*;

fn section(milliseconds: u64) -> Section {
    Section {
        rtt: Duration::from_millis(milliseconds),
        loss: 0.0,
        window: None,
        line: None,
        congestion: Congestion::Cubic,
        mss: 1448,
        warm: false,
    }
}

#[test]
fn a_window_over_the_round_trip() {
    let window = Section { window: Some(64 << 10), ..section(50) };
    assert!((window.rate() - 65536.0 / 0.05).abs() < 1.0);
}

#[test]
fn handshakes_and_then_the_request() {
    let costs = Costs { hop: Duration::ZERO, ..Costs::default() };
    assert_eq!(first_byte(&[section(100)], &costs), Duration::from_millis(200));
    let relayed = [Section { warm: true, ..section(60) }, section(40)];
    assert_eq!(first_byte(&relayed, &costs), Duration::from_millis(140));
    assert_eq!(first_byte(&relayed, &Costs { waits: true, ..costs }), Duration::from_millis(200));
}
