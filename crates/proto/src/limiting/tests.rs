use std::time::Duration;

use super::*;
use crate::path::reading::TcpCounters;

const SECOND: Duration = Duration::from_secs(1);
const RTT: Duration = Duration::from_millis(40);

/// The events of one second of a session whose seconds are all equal.
#[derive(Clone)]
struct Second {
    /// Bytes that move in one second, and the number of pieces.
    bytes: u64,
    moves: u64,
    blocked: Duration,
    /// Duration of each wait for bytes; the waits fill the rest.
    wait: Duration,
    /// The part of the waits during which received bytes are held by the rate limiter.
    throttled: Duration,
    ran: Duration,
    queued: Duration,
    unread: bool,
    /// Whether all of the send buffer is in flight.
    all_sent: bool,
    /// The congestion window before the first second, and its growth per second, in segments.
    cwnd: u32,
    widened: u32,
    /// Counters of the sending section for one second; the other fields are absolute.
    sending: TcpCounters,
    /// Counters of the receiving section, likewise.
    receiving: TcpCounters,
}

/// 10 Mbit/s in pieces, for each of which the relay has to wait.
fn second() -> Second {
    let section =
        TcpCounters { rtt: RTT, min_rtt: RTT, rcv_rtt: RTT, mss: 1448, rcv_mss: 1448, ..TcpCounters::default() };
    Second {
        bytes: 1_250_000,
        moves: 863,
        blocked: Duration::ZERO,
        wait: Duration::from_micros(1160),
        throttled: Duration::ZERO,
        ran: Duration::from_millis(20),
        queued: Duration::ZERO,
        unread: false,
        all_sent: false,
        cwnd: 10,
        widened: 0,
        sending: TcpCounters {
            segments_sent: 863,
            bytes_sent: 1_250_000,
            busy: SECOND,
            peer_window: 1 << 20,
            ..section
        },
        receiving: TcpCounters { segments_received: 863, bytes_received: 1_249_624, own_window: 1 << 20, ..section },
    }
}

/// 10 Mbit/s with a send buffer that is always full.
fn full() -> Second {
    Second { blocked: SECOND, ..second() }
}

/// A tracker with `seconds` seconds like `second`.
fn account(direction: Direction, seconds: u32, second: &Second) -> LimitTracker {
    let mut account = LimitTracker::default();
    add(&mut account, direction, 1..=seconds, second);
    account
}

fn add(account: &mut LimitTracker, direction: Direction, seconds: std::ops::RangeInclusive<u32>, second: &Second) {
    for now in seconds {
        let times = |reading: &TcpCounters| TcpCounters {
            segments_sent: reading.segments_sent * now,
            retransmitted: reading.retransmitted * now,
            segments_received: reading.segments_received * now,
            out_of_order: reading.out_of_order * now,
            bytes_sent: reading.bytes_sent * u64::from(now),
            bytes_received: reading.bytes_received * u64::from(now),
            busy: reading.busy * now,
            rwnd_limited: reading.rwnd_limited * now,
            sndbuf_limited: reading.sndbuf_limited * now,
            ..*reading
        };
        let waiting = (SECOND - second.blocked) * now;
        let clocks = FlowCounters {
            bytes: second.bytes * u64::from(now),
            moves: second.moves * u64::from(now),
            blocked: second.blocked * now,
            waiting,
            wait_squares: waiting.as_secs_f64() * second.wait.as_secs_f64(),
            throttled: second.throttled * now,
        };
        let (no_room, all_sent) = (!second.blocked.is_zero(), second.all_sent);
        let to = SideSample {
            counters: Some(times(&second.sending)),
            cwnd: second.cwnd + second.widened * now,
            send_buffer_full: no_room,
            all_in_flight: all_sent,
            flow: clocks,
            ..SideSample::default()
        };
        let from =
            SideSample { counters: Some(times(&second.receiving)), has_unread: second.unread, ..SideSample::default() };
        let (down, up) = if direction == Direction::Down { (to, from) } else { (from, to) };
        account.record(&SessionSample { span: SECOND, run_time: second.ran, runqueue_wait: second.queued, down, up });
    }
}

/// Returns the diagnosis of ten seconds like `second`. Asserts that the diagnoses of the last seconds and of the
/// session are equal.
fn diagnosis(direction: Direction, second: &Second) -> String {
    let account = account(direction, 10, second);
    let whole = account.overall_limit(direction).map(|limit| limit.factor().to_string());
    let limits = account.limits();
    let now = if direction == Direction::Down { limits.down } else { limits.up };
    assert_eq!(now.map(|limit| limit.factor().to_string()), whole);
    whole.unwrap_or_else(|| "nothing".to_owned())
}

fn down(second: &Second) -> String {
    diagnosis(Direction::Down, second)
}

#[test]
fn slow_reader_is_distinguished_from_a_small_window() {
    let held = Duration::from_millis(900);
    let mut slow = full();
    slow.sending.rwnd_limited = held;
    assert_eq!(down(&slow), "down:client_slow", "50 kB of 1 MiB are in flight");
    assert_eq!(diagnosis(Direction::Up, &slow), "up:server_slow");
    let mut small = slow.clone();
    small.sending.peer_window = 60_000;
    assert_eq!(down(&small), "down:window");

    // The window was wide before unread bytes filled the buffer.
    let mut account = account(Direction::Down, 1, &slow);
    add(&mut account, Direction::Down, 2..=10, &small);
    assert_eq!(account.limits().down.unwrap().by, Bottleneck::ClientSlow);
}

/// A client may ask several servers over one connection.
#[test]
fn small_window_of_another_server_is_detected() {
    let mut wide = full();
    wide.sending.rwnd_limited = Duration::from_millis(900);
    let mut small = wide.clone();
    small.sending.peer_window = 60_000;
    let mut account = account(Direction::Up, 1, &wide);
    account.start_section(Direction::Up, TcpCounters::default(), 0);
    add(&mut account, Direction::Up, 2..=10, &small);
    assert_eq!(account.limits().up.unwrap().by, Bottleneck::Window);
}

#[test]
fn stopped_reader_is_diagnosed_without_moved_bytes() {
    let mut stopped = full();
    (stopped.bytes, stopped.moves, stopped.sending.bytes_sent) = (0, 0, 0);
    stopped.sending.rwnd_limited = SECOND;
    assert_eq!(down(&stopped), "down:client_slow");
}

#[test]
fn send_buffer_that_is_all_in_flight_is_the_limit() {
    let mut small = full();
    small.sending.sndbuf_limited = Duration::from_millis(300);
    assert_eq!(down(&small), "down:send_buffer");
    small.sending.sndbuf_limited = Duration::from_millis(200);
    assert_eq!(down(&small), "down:path_rate");
    small.all_sent = true;
    assert_eq!(down(&small), "down:send_buffer", "sndbuf_limited does not always advance");
}

#[test]
fn loss_is_the_limit_only_without_a_queue() {
    let mut lossy = full();
    assert_eq!(down(&lossy), "down:path_rate", "nothing is lost");
    (lossy.sending.retransmitted, lossy.sending.has_backed_off) = (9, true);
    assert_eq!(down(&lossy), "down:loss");
    lossy.sending.has_backed_off = false;
    assert_eq!(down(&lossy), "down:path_rate", "BBR does not back off");
    (lossy.sending.has_backed_off, lossy.sending.rtt) = (true, RTT * 2);
    assert_eq!(down(&lossy), "down:path_rate", "a queue overflows");
    let why = account(Direction::Down, 10, &lossy).limits().down.unwrap().why;
    assert_eq!(why, "the relay had more to send than 10 Mbit/s; of the round trip of 80 ms, 40 ms are queueing delay");
}

#[test]
fn share_is_the_limit_only_if_the_pacing_rate_is_reached() {
    let mut paced = full();
    paced.sending.max_pacing_rate = Some(1_300_000);
    assert_eq!(down(&paced), "down:share");
    paced.sending.max_pacing_rate = Some(2_600_000);
    assert_eq!(down(&paced), "down:path_rate");
}

#[test]
fn rate_limit_of_the_relay_is_not_a_slow_server() {
    let mut throttled = second();
    (throttled.wait, throttled.throttled) = (Duration::from_millis(10), Duration::from_millis(900));
    assert_eq!(down(&throttled), "relay:rate_limit");
    assert_eq!(diagnosis(Direction::Up, &throttled), "relay:rate_limit");
    throttled.throttled = Duration::from_millis(400);
    assert_eq!(down(&throttled), "up:server_slow");
}

#[test]
fn pauses_mean_a_slow_peer() {
    let mut slow = second();
    slow.wait = Duration::from_millis(50);
    assert_eq!(down(&slow), "up:server_slow");
    assert_eq!(diagnosis(Direction::Up, &slow), "down:client_slow");
    // The pauses delay the answers to acknowledgements, too.
    slow.receiving.rcv_rtt = RTT * 2;
    assert_eq!(down(&slow), "up:server_slow");
}

#[test]
fn small_segments_mean_a_slow_server() {
    let mut small = second();
    small.receiving.segments_received = 1200;
    assert_eq!(down(&small), "up:server_slow");
}

#[test]
fn bytes_without_pauses_are_limited_by_the_path() {
    let mut queue = second();
    assert_eq!(down(&queue), "up:path_rate");
    (queue.wait, queue.receiving.rcv_rtt) = (Duration::from_millis(10), RTT * 3);
    assert_eq!(down(&queue), "up:path_rate", "a queue on the path, despite waits of 10 ms");
    queue.receiving.out_of_order = 100;
    assert_eq!(down(&queue), "up:path_rate", "a queue that overflows");
}

#[test]
fn receive_loss_is_inferred_from_out_of_order_segments() {
    let mut lossy = second();
    (lossy.receiving.out_of_order, lossy.wait) = (80, RTT);
    assert_eq!(down(&lossy), "up:loss");
    lossy.receiving.out_of_order = 1;
    assert_ne!(down(&lossy), "up:loss", "a single reordered segment");
}

#[test]
fn exhausted_receive_window_is_the_limit() {
    let mut small = second();
    (small.receiving.own_window, small.wait) = (60_000, Duration::from_millis(20));
    assert_eq!(down(&small), "up:window");
}

#[test]
fn relay_without_cpu_time_is_the_limit() {
    let mut busy = Second { ran: Duration::from_millis(950), unread: true, ..second() };
    assert_eq!(down(&busy), "relay:relay_cpu");
    busy.unread = false;
    assert_eq!(down(&busy), "up:path_rate", "no backlog: other sessions keep the thread busy");
    // The thread does not run in time to see the free room.
    let throttled = Second {
        ran: Duration::from_millis(100),
        queued: Duration::from_millis(880),
        blocked: Duration::from_millis(900),
        moves: 20,
        ..second()
    };
    assert_eq!(down(&throttled), "relay:relay_cpu");
    let mut slow = throttled.clone();
    slow.sending.rwnd_limited = Duration::from_millis(900);
    assert_eq!(down(&slow), "down:client_slow", "counters of the kernel do not depend on the thread");
}

#[test]
fn too_little_data_gives_no_diagnosis() {
    let mut little = second();
    (little.bytes, little.moves) = (1000, 3);
    assert_eq!(down(&little), "nothing");
    assert_eq!(LimitTracker::default().limits(), Diagnoses::default());
}

#[test]
fn sender_is_not_slow_within_few_round_trips() {
    let mut page = second();
    (page.wait, page.receiving.min_rtt, page.receiving.rcv_rtt) = (RTT, RTT * 5, RTT * 5);
    let limit = account(Direction::Down, 1, &page).limits().down.unwrap();
    assert_eq!(limit.factor().to_string(), "up:path_rate");
    assert_eq!(limit.why, "the server has been sending for only 5 round trips");
}

#[test]
fn limits_cover_last_seconds_and_overall_limit_the_session() {
    let mut slow = full();
    slow.sending.rwnd_limited = SECOND;
    let mut account = account(Direction::Down, 40, &second());
    // The counters of the connection continue for ten seconds with a slow reader.
    let before = account.clone();
    for now in 41..=50 {
        let mut later = slow.clone();
        later.sending.rwnd_limited = SECOND * (now - 40) / now;
        later.blocked = SECOND * (now - 40) / now;
        add(&mut account, Direction::Down, now..=now, &later);
    }
    assert_eq!(account.limits().down.unwrap().factor().to_string(), "down:client_slow");
    assert_eq!(account.overall_limit(Direction::Down).unwrap().factor().to_string(), "up:path_rate");
    assert_eq!(before.limits().down.unwrap().factor().to_string(), "up:path_rate");
}

#[test]
fn restarted_counters_keep_the_diagnosis() {
    let with_loss = |retransmitted: u32| {
        let mut lossy = full();
        lossy.sending = TcpCounters { segments_sent: 2000, retransmitted, has_backed_off: true, ..lossy.sending };
        lossy
    };
    let limit = |account: &LimitTracker| account.limits().down.unwrap().factor().to_string();
    // One of 2000 segments is lost, then nine of 2000 of a second connection: its loss would be the diagnosis.
    let mut account = account(Direction::Down, 10, &with_loss(1));
    add(&mut account, Direction::Down, 1..=1, &with_loss(9));
    assert_eq!(limit(&account), "down:path_rate", "the first sample of a connection gives no difference");
    add(&mut account, Direction::Down, 2..=2, &with_loss(9));
    assert_eq!(limit(&account), "down:loss", "the second sample gives the difference to the first");
}

/// A second in which each of its 863 segments widens the window.
fn growing() -> Second {
    Second { widened: 863, ..full() }
}

#[test]
fn window_that_grows_from_its_start_is_slow_start() {
    assert_eq!(down(&growing()), "down:slow_start");
    assert_eq!(diagnosis(Direction::Up, &growing()), "up:slow_start");
    let why = account(Direction::Down, 1, &growing()).limits().down.unwrap().why;
    assert_eq!(why, "the congestion window was still in slow start, at 1.21 MiB: 10 Mbit/s at 40 ms");
    assert_eq!(down(&Second { widened: 432, ..full() }), "down:slow_start");
    assert_eq!(
        down(&Second { widened: 431, ..full() }),
        "down:path_rate",
        "congestion avoidance of CUBIC at its fastest"
    );
    assert_eq!(down(&Second { widened: 863, ..second() }), "up:path_rate", "a sender that waits for data");
}

#[test]
fn other_limits_take_precedence_over_slow_start() {
    let mut lossy = growing();
    (lossy.sending.retransmitted, lossy.sending.has_backed_off) = (9, true);
    assert_eq!(down(&lossy), "down:loss");
    lossy.sending.has_backed_off = false;
    assert_eq!(down(&lossy), "down:path_rate", "BBR in STARTUP that overflows a queue");
    let mut queue = growing();
    queue.sending.rtt = RTT * 3 / 2;
    assert_eq!(down(&queue), "down:path_rate", "the path is full");
    let mut reader = growing();
    reader.sending.rwnd_limited = Duration::from_millis(900);
    assert_eq!(down(&reader), "down:client_slow");
    let mut buffer = growing();
    buffer.sending.sndbuf_limited = Duration::from_millis(300);
    assert_eq!(down(&buffer), "down:send_buffer");
}

#[test]
fn slow_start_is_the_limit_of_a_short_transfer_only() {
    let mut account = account(Direction::Down, 2, &growing());
    let factor_name = |limit: Option<Diagnosis>| limit.unwrap().factor().to_string();
    assert_eq!(factor_name(account.overall_limit(Direction::Down)), "down:slow_start");
    let steady = Second { cwnd: 10 + 2 * 863, ..full() };
    add(&mut account, Direction::Down, 3..=30, &steady);
    assert_eq!(factor_name(account.limits().down), "down:path_rate");
    assert_eq!(factor_name(account.overall_limit(Direction::Down)), "down:path_rate");
}

/// The kernel resets the window of an idle connection, with or without a slow-start threshold.
#[test]
fn window_reset_after_idle_time_is_slow_start_again() {
    let mut account = LimitTracker::default();
    account.start_section(Direction::Down, TcpCounters::default(), 2000);
    add(&mut account, Direction::Down, 1..=1, &growing());
    assert_eq!(account.limits().down.unwrap().by, Bottleneck::SlowStart, "from 2000 to 10, and to 873");
}

#[test]
fn reused_section_is_judged_by_the_current_session() {
    let earlier =
        TcpCounters { bytes_sent: 1 << 30, busy: SECOND * 99, rwnd_limited: SECOND * 98, ..growing().sending };
    let mut session = growing();
    (session.sending.bytes_sent, session.sending.busy) = (earlier.bytes_sent + 1_250_000, earlier.busy + SECOND);
    session.sending.rwnd_limited = earlier.rwnd_limited;
    let by = |account: &mut LimitTracker| {
        add(account, Direction::Down, 1..=1, &session);
        account.limits().down.unwrap().by
    };
    let mut account = LimitTracker::default();
    account.start_section(Direction::Down, earlier, 10);
    assert_eq!(by(&mut account), Bottleneck::SlowStart);
    assert_ne!(by(&mut LimitTracker::default()), Bottleneck::SlowStart, "with the counters of the earlier sessions");
}
