//! Every phase of `resume.h` and every transition between phases, event by event.

use crate::rng::SeededRng;
use crate::steps::{
    Connection, MSS, Op, REJECTED, RETREATED, RETREATING, RTT_US, UNVALIDATED, VALIDATED, VALIDATING, WAITING,
};

/// `enum resume_reason`.
const EXPIRED: u32 = 1;
const NO_RTT: u32 = 2;
const RTT_SHORTER: u32 = 3;
const RTT_LONGER: u32 = 4;
const CONGESTION: u32 = 5;

/// A connection that has sent all of a jump to 400 packets.
fn connection_after_jump() -> Connection {
    let mut connection = Connection::requesting(400);
    assert_eq!(connection.transmit(1000), 400);
    connection
}

#[test]
fn acknowledged_jump_is_validated() {
    let mut connection = connection_after_jump();
    assert_eq!((connection.state.phase, connection.state.before), (UNVALIDATED, 10));
    // Acknowledgements of the former window do not validate the jump, and the window does not grow.
    connection.acknowledge(10);
    assert_eq!((connection.state.phase, connection.flow.window, connection.state.pipe), (UNVALIDATED, 400, 0));
    // The window is set to the flight, and then grows by slow start: 389 + 1.
    connection.acknowledge(1);
    assert_eq!((connection.state.phase, connection.flow.window), (VALIDATING, 390));
    assert_eq!((connection.state.sent, connection.state.pipe), (400, 11));
    assert_eq!(connection.state.last.wrapping_sub(connection.state.first), 400 * MSS);
    // Data that is sent in this phase is not part of the jump.
    assert_eq!(connection.transmit(1), 1);
    connection.acknowledge(388);
    assert_eq!((connection.state.phase, connection.state.pipe), (VALIDATING, 399));
    connection.acknowledge(1);
    assert_eq!((connection.state.phase, connection.state.pipe), (VALIDATED, 400));
    assert_eq!(connection.flow.window, 779);
    connection.acknowledge(1);
    assert_eq!((connection.state.phase, connection.state.pipe), (VALIDATED, 400), "the jump is over");
}

/// The window follows the data that was sent, not the jump that was permitted.
#[test]
fn partly_used_jump_is_validated_for_the_sent_packets() {
    let mut connection = Connection::requesting(400);
    assert_eq!(connection.transmit(50), 50);
    connection.acknowledge(11);
    assert_eq!(
        (connection.state.phase, connection.flow.window, connection.state.sent),
        (VALIDATING, 50, 50),
        "39 and 11"
    );
    let mut connection = Connection::requesting(400);
    assert_eq!(connection.transmit(12), 12);
    connection.acknowledge(11);
    assert_eq!((connection.state.phase, connection.flow.window), (VALIDATING, 21), "not less than before the jump");
}

/// The first data of a session is often short: a request, or the first messages of TLS.
#[test]
fn transmission_within_the_window_keeps_the_request_waiting() {
    let mut connection = Connection::requesting(400);
    assert_eq!(connection.transmit(3), 3);
    assert_eq!(connection.state.phase, UNVALIDATED);
    connection.acknowledge(1);
    assert_eq!((connection.state.phase, connection.flow.window), (UNVALIDATED, 400));
    // Further data in the same round trip may use the window of the jump, of which two packets are in flight.
    assert_eq!(connection.transmit(4), 4);
    connection.acknowledge(6);
    assert_eq!((connection.state.phase, connection.flow.window), (WAITING, 16), "10, and slow start for 6");
    assert_eq!(connection.transmit(1000), 400);
    assert_eq!((connection.state.phase, connection.state.before), (UNVALIDATED, 16));
}

#[test]
fn request_has_no_effect_before_a_transmission() {
    let mut connection = Connection::requesting(400);
    let before = connection.state;
    assert_eq!(connection.step(Op::Ack), 0);
    assert_eq!(connection.step(Op::LeaveRetreat), 0);
    assert_eq!(connection.step(Op::CanGrow { in_loss: false }), 1);
    assert_eq!(connection.state, before);
}

/// A connection may have been idle for too short a time for the kernel to reduce its window.
#[test]
fn window_as_large_as_the_jump_keeps_the_request_waiting() {
    let mut connection = Connection::requesting(400);
    connection.flow.window = 400;
    assert_eq!((connection.step(Op::Start), connection.state.phase), (0, WAITING));
    connection.flow.window = 399;
    assert_eq!((connection.step(Op::Start), connection.state.phase), (400, UNVALIDATED));
}

#[test]
fn pacing_rate_is_the_jump_per_rtt_capped_by_the_limit() {
    let mut connection = connection_after_jump();
    let rate = 400 * u64::from(MSS) * 10;
    assert_eq!(connection.step(Op::Rate), rate);
    connection.flow.max_rate = rate - 1;
    assert_eq!(connection.step(Op::Rate), rate - 1);
    connection.flow.max_rate = 1;
    assert_eq!(connection.step(Op::Rate), 1);
    connection.flow.max_rate = rate + 1;
    connection.flow.rtt_us = 2 * RTT_US;
    assert_eq!(connection.step(Op::Rate), rate / 2);
}

#[test]
fn expired_requests_and_deviating_rtts_are_rejected() {
    for (now_us, rtt_us, expected) in [
        (60_000_000, RTT_US, Ok(400)),
        (60_000_001, RTT_US, Err(EXPIRED)),
        (0, 0, Err(NO_RTT)),
        (0, RTT_US / 2, Ok(400)),
        (0, RTT_US / 2 - 1, Err(RTT_SHORTER)),
        (0, RTT_US * 2, Ok(400)),
        (0, RTT_US * 2 + 1, Err(RTT_LONGER)),
    ] {
        let mut connection = Connection::requesting(400);
        (connection.flow.now_us, connection.flow.rtt_us) = (now_us, rtt_us);
        let window = connection.step(Op::Start);
        let found = if window == 0 { Err(connection.state.reason) } else { Ok(window) };
        assert_eq!(found, expected, "{now_us} us, {rtt_us} us");
        assert_eq!(connection.state.phase, if expected.is_ok() { UNVALIDATED } else { REJECTED });
        connection.flow.rtt_us = RTT_US;
        assert_eq!(connection.step(Op::Start), 0, "the rejection is final");
    }
}

#[test]
fn congestion_before_the_jump_rejects_the_request() {
    let mut connection = Connection::requesting(400);
    connection.lose(7);
    assert_eq!((connection.state.phase, connection.state.reason, connection.threshold), (REJECTED, CONGESTION, 7));
}

/// No packet of the jump is acknowledged before a retransmission timeout, or before ECN marks on the first packets.
#[test]
fn loss_in_the_unvalidated_phase_starts_a_retreat() {
    let mut connection = connection_after_jump();
    connection.acknowledge(6);
    connection.lose(280);
    assert_eq!((connection.state.phase, connection.state.pipe, connection.state.sent), (RETREATING, 6, 400));
    assert_eq!((connection.threshold, connection.flow.window), (3, 3));
    assert_eq!(connection.step(Op::CanGrow { in_loss: false }), 0);
    assert_eq!(connection.step(Op::CanGrow { in_loss: true }), 1, "after a timeout");
    // A second reduction, such as that of a timeout in recovery, leaves at least two packets.
    let mut connection = connection_after_jump();
    connection.lose(280);
    connection.lose(5);
    assert_eq!((connection.state.phase, connection.threshold), (RETREATING, 2));
}

/// Of 400 packets 100 arrive, then 3 behind a gap. Finally 250 packets have arrived without a retransmission.
#[test]
fn loss_in_the_validating_phase_starts_a_retreat() {
    let mut connection = connection_after_jump();
    connection.acknowledge(100);
    assert_eq!(connection.state.phase, VALIDATING);
    connection.acknowledge_selectively(3);
    connection.lose(280);
    assert_eq!((connection.state.phase, connection.state.pipe), (RETREATING, 103));
    assert_eq!((connection.threshold, connection.flow.window), (51, 51));
    let proven = [50, 300].map(|window| connection.step(Op::Proven { window }));
    assert_eq!(proven, [50, 103], "capped by the packets that arrived");
    connection.acknowledge_selectively(147);
    assert_eq!((connection.state.pipe, connection.threshold), (250, 125), "ssthresh follows");
    // Retransmissions of the rest do not count, and the window does not grow until the whole jump is acknowledged.
    connection.flow.retransmitted += 150;
    connection.flow.delivered += 149;
    assert_eq!(connection.step(Op::Ack), 0);
    connection.flow.una = connection.state.last.wrapping_sub(MSS);
    assert_eq!(connection.step(Op::LeaveRetreat), 0);
    assert_eq!(connection.step(Op::CanGrow { in_loss: false }), 0);
    connection.flow.flight = 1;
    connection.acknowledge(1);
    assert_eq!((connection.state.phase, connection.state.pipe, connection.threshold), (RETREATED, 250, 125));
    assert!(connection.flow.window <= 125, "{}", connection.flow.window);
    assert_eq!(connection.step(Op::CanGrow { in_loss: false }), 1);
}

/// The kernel detects that the packet was late and not lost, and restores ssthresh.
#[test]
fn spurious_loss_does_not_cancel_the_retreat() {
    let mut connection = connection_after_jump();
    connection.acknowledge(100);
    connection.lose(280);
    (connection.threshold, connection.flow.window) = (u32::MAX, 50);
    connection.acknowledge(200);
    assert_eq!((connection.state.phase, connection.state.pipe, connection.threshold), (RETREATING, 300, u32::MAX));
    connection.acknowledge(100);
    assert_eq!((connection.state.phase, connection.state.pipe, connection.threshold), (RETREATED, 400, 200));
}

#[test]
fn request_permits_one_jump() {
    let mut connection = connection_after_jump();
    connection.acknowledge(11);
    connection.acknowledge(389);
    assert_eq!(connection.state.phase, VALIDATED);
    connection.flow.window = 10;
    assert_eq!(connection.transmit(1000), 10);
    // Careful Resume does not change the response to a later loss.
    connection.lose(7);
    assert_eq!((connection.state.phase, connection.threshold), (VALIDATED, 7));
    assert_eq!(connection.step(Op::Proven { window: 900 }), 900);
    let mut connection = connection_after_jump();
    connection.lose(280);
    connection.flow.flight = 0;
    connection.flow.una = connection.flow.nxt;
    connection.step(Op::LeaveRetreat);
    assert_eq!((connection.state.phase, connection.step(Op::Start)), (RETREATED, 0));
}

/// For random orders of events, the code of both compilers agrees, the jump is not longer than the request permits, and
/// the window of a retreat is half of PipeSize.
#[test]
fn no_order_of_events_sends_more_than_the_jump() {
    let mut rng = SeededRng::new(1);
    let mut phases = [0_u32; 8];
    for _ in 0..60 {
        let target = 2 + rng.below(500);
        let mut connection = Connection::requesting(target);
        connection.flow.rtt_us = 45_000 + rng.below(170_000);
        for _ in 0..40 {
            let flight = connection.flow.flight;
            match rng.below(8) {
                0..3 => drop(connection.transmit(rng.below(400))),
                3..6 if flight > 0 => connection.acknowledge(1 + rng.below(flight)),
                6 if flight > 0 => connection.acknowledge_selectively(1 + rng.below(flight)),
                7 if rng.below(4) == 0 => connection.lose(2 + rng.below(500)),
                _ => {}
            }
            let state = connection.state;
            phases[state.phase as usize] += 1;
            if matches!(state.phase, VALIDATING..=RETREATED) {
                assert!(state.sent <= state.target + state.before, "{state:?}");
                assert!(state.pipe <= state.sent, "{state:?}");
            }
            if state.phase == RETREATING {
                assert!(connection.threshold <= (state.pipe / 2).max(2), "{state:?}");
            }
        }
    }
    assert!(phases[1..].iter().all(|count| *count > 0), "{phases:?}");
}
