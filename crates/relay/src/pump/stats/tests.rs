use super::*;

#[test]
fn what_waited_for_room_did_not_wait_for_bytes() {
    let stats = FlowStats::new(Rc::new(()));
    let past = |millis| Instant::now() - Duration::from_millis(millis);
    stats.response_timer.last_moved_at(Direction::Down, past(500));
    let mut stall = stats.start_stall(Direction::Down);
    stall.since = past(300);
    stats.down.blocked_since.set(Some(stall.since));
    assert!(stats.is_blocked(Direction::Down) && stats.counters(Direction::Down).blocked >= Duration::from_millis(300));
    stats.record_copied(Direction::Down, 10);
    assert!(stall.end() >= Duration::from_millis(300));
    let clocks = stats.counters(Direction::Down);
    assert!(!stats.is_blocked(Direction::Down) && clocks.blocked >= Duration::from_millis(300), "{clocks:?}");
    let waited = clocks.waiting.as_secs_f64();
    assert!((0.19..0.4).contains(&waited) && (clocks.wait_squares - waited * waited).abs() < 1e-9, "{clocks:?}");
    assert_eq!((clocks.bytes, clocks.moves), (10, 1));

    stats.response_timer.last_moved_at(Direction::Down, past(500));
    stats.record_copied(Direction::Up, 10);
    assert_eq!(stats.counters(Direction::Up).waiting, Duration::ZERO, "the client's own time");
}
