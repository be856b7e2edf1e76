use std::time::Duration;

use super::*;

mod later_visits;
mod published;

const ALL: [CongestionControl; 4] =
    [CongestionControl::Reno, CongestionControl::Cubic, CongestionControl::Ctcp, CongestionControl::Bbr];

/// A section with CUBIC, without loss, limits or a ready connection.
fn section(milliseconds: f64) -> SectionModel {
    SectionModel {
        rtt: Duration::from_secs_f64(milliseconds / 1e3),
        loss: 0.0,
        window: None,
        line_rate: None,
        congestion: CongestionControl::Cubic,
        mss: 1448,
        connection: Connection::New,
    }
}

/// Relay costs of zero, without a rate limit.
fn free_relays() -> RelayCosts {
    RelayCosts { hop_delay: Duration::ZERO, relay_rate: f64::MAX, share: 0.0, waits_for_connect: false }
}

#[track_caller]
fn assert_near(found: f64, wanted: f64, share: f64) {
    assert!((found - wanted).abs() <= wanted * share, "{found}, not {wanted}");
}

/// Packets in flight in the steady state.
fn packets_in_flight(section: &SectionModel) -> f64 {
    section.rate() * section.rtt.as_secs_f64() / f64::from(section.mss)
}

#[test]
fn congestion_control_names_match_the_kernel() {
    let names = ["reno", "cubic", "ctcp", "bbr", "westwood", ""].map(CongestionControl::from_name);
    assert_eq!(
        names[..4],
        [CongestionControl::Reno, CongestionControl::Cubic, CongestionControl::Ctcp, CongestionControl::Bbr]
    );
    assert_eq!(names[4..], [CongestionControl::Cubic, CongestionControl::Cubic]);
}

#[test]
fn window_limited_rate_is_window_over_round_trip() {
    for congestion in [CongestionControl::Reno, CongestionControl::Cubic, CongestionControl::Ctcp] {
        assert_near(SectionModel { window: Some(64 << 10), congestion, ..section(50.0) }.rate(), 65536.0 / 0.05, 1e-9);
    }
}

#[test]
fn line_limited_rate_excludes_the_headers() {
    assert_near(payload_rate(12.5e6, 1448), 12.5e6 * 1448.0 / 1500.0, 1e-9);
    let section = SectionModel { line_rate: Some(payload_rate(12.5e6, 1448)), ..section(10.0) };
    assert_near(section.rate(), 12.5e6 * 1448.0 / 1500.0, 1e-9);
}

/// The rates are within a fifth of the published response functions: less for recovery, more for random losses.
#[test]
fn loss_response_matches_the_published_functions() {
    let at = |congestion, loss: f64, rtt: f64| {
        packets_in_flight(&SectionModel { congestion, loss, window: Some(u64::MAX), ..section(rtt) }) / (1.0 - loss)
    };
    for loss in [1e-5_f64, 1e-4, 1e-3, 1e-2] {
        assert_near(at(CongestionControl::Reno, loss, 40.0), 1.22 / loss.sqrt(), 0.12);
        assert_near(at(CongestionControl::Cubic, loss, 5.0), 1.22 / loss.sqrt(), 0.15);
        assert_near(at(CongestionControl::Cubic, loss / 10.0, 1000.0), 1.054 * (10.0 / loss).powf(0.75), 0.14);
    }
    for loss in [1e-6_f64, 1e-5, 1e-4] {
        assert_near(at(CongestionControl::Ctcp, loss, 40.0), 0.255 / loss.powf(0.8), 0.05);
    }
    assert_near(at(CongestionControl::Ctcp, 0.01, 40.0), at(CongestionControl::Reno, 0.01, 40.0), 0.05);
}

#[test]
fn bbr_keeps_the_bandwidth_until_a_fifth_is_lost() {
    let share = |loss: f64| {
        let bbr = SectionModel { congestion: CongestionControl::Bbr, loss, line_rate: Some(1e7), ..section(40.0) };
        bbr.rate() / SectionModel { loss: 0.0, ..bbr }.rate()
    };
    assert_near(share(0.01), 0.99, 1e-3);
    assert_near(share(0.1), 0.9, 1e-3);
    assert!(share(0.25) < 0.05, "{}", share(0.25));
}

#[test]
fn time_to_first_byte_is_handshakes_and_request() {
    assert_eq!(time_to_first_byte(&[section(100.0)], &free_relays()), Duration::from_millis(200));
    let relayed = [SectionModel { connection: Connection::Ready, ..section(60.0) }, section(40.0)];
    assert_eq!(time_to_first_byte(&relayed, &free_relays()), Duration::from_millis(140));
    assert_eq!(
        time_to_first_byte(&relayed, &RelayCosts { waits_for_connect: true, ..free_relays() }),
        Duration::from_millis(200)
    );
    let hop = RelayCosts { hop_delay: Duration::from_millis(3), ..free_relays() };
    assert_eq!(time_to_first_byte(&relayed, &hop), Duration::from_millis(143), "one relay");
}

/// 10 packets, then 20, then 40: RFC 6928 and a window that doubles per round trip.
#[test]
fn slow_start_takes_a_round_trip_for_each_doubling() {
    let rounds = |packets: u64| {
        let time = completion(&[section(100.0)], packets * 1448, &free_relays()).as_secs_f64() - 0.2;
        (time / 0.1).round() as u64
    };
    assert_eq!([1, 10, 11, 30, 31, 70, 71, 151].map(rounds), [0, 0, 1, 1, 2, 2, 3, 4]);
}

#[test]
fn slow_starts_of_sections_overlap() {
    let half = SectionModel { line_rate: Some(1e7), ..section(50.0) };
    let one = completion(&[half], 1 << 20, &free_relays()) - time_to_first_byte(&[half], &free_relays());
    let two = completion(&[half, half], 1 << 20, &free_relays()) - time_to_first_byte(&[half, half], &free_relays());
    assert_eq!(one, two);
    let longer = SectionModel { rtt: Duration::from_millis(80), ..half };
    let slowest = completion(&[longer], 1 << 20, &free_relays()) - time_to_first_byte(&[longer], &free_relays());
    assert_eq!(
        completion(&[half, longer], 1 << 20, &free_relays()) - time_to_first_byte(&[half, longer], &free_relays()),
        slowest
    );
}

#[test]
fn relay_rate_limits_only_paths_through_relays() {
    let fast = SectionModel { line_rate: Some(1e9), window: Some(1 << 30), ..section(1.0) };
    let slow_relay = RelayCosts { relay_rate: 1e6, ..free_relays() };
    assert_near(path_rate(&[fast, fast], &slow_relay), 1e6, 1e-9);
    assert_near(path_rate(&[fast], &slow_relay), 1e9, 1e-9);
    assert!(completion(&[fast, fast], 10_000_000, &slow_relay) >= Duration::from_secs(10));
    assert!(completion(&[fast], 10_000_000, &slow_relay) < Duration::from_secs(1));
}

#[test]
fn a_path_of_no_sections_carries_nothing() {
    assert_eq!(path_rate(&[], &RelayCosts::default()), 0.0);
    assert_eq!(time_to_first_byte(&[], &RelayCosts::default()), Duration::ZERO);
    assert_eq!(completion(&[], 1 << 20, &RelayCosts::default()), Duration::from_secs(u64::from(MAX_SECONDS)));
}

/// The results are finite and bounded for every input, measured or claimed.
#[test]
fn results_are_finite_and_bounded_for_every_input() {
    let durations = [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(3600), Duration::MAX];
    let losses = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, f64::MIN_POSITIVE, 0.5, 1.0, 7.0];
    let lines =
        [None, Some(f64::NAN), Some(0.0), Some(-5.0), Some(f64::INFINITY), Some(f64::MIN_POSITIVE), Some(1e300)];
    for (rtt, loss, line) in product(&durations, &losses, &lines) {
        for (window, mss, congestion) in product(&[None, Some(0), Some(u64::MAX)], &[0, 1448, u16::MAX], &ALL) {
            let connection = window.map_or(Connection::Ready, Connection::Used);
            let section = SectionModel { rtt, loss, window, line_rate: line, congestion, mss, connection };
            assert!(section.rate().is_finite() && section.rate() > 0.0, "{section:?}");
            for size in [0, 1, 1 << 20, u64::MAX] {
                let time = completion(&[section; 3], size, &RelayCosts::default());
                assert!(time <= Duration::from_secs(u64::from(MAX_SECONDS)), "{section:?}: {time:?} for {size}");
                let later = completion(&[section.after_transfer(size); 3], size, &RelayCosts::default());
                assert!(later <= Duration::from_secs(u64::from(MAX_SECONDS)), "{section:?}: {later:?} for {size}");
            }
        }
    }
}

fn product<A: Copy, B: Copy, C: Copy>(a: &[A], b: &[B], c: &[C]) -> Vec<(A, B, C)> {
    a.iter().flat_map(|a| b.iter().flat_map(|b| c.iter().map(|c| (*a, *b, *c)))).collect()
}

/// The values of the sweep, in small and large steps over the range that occurs in practice.
const RTTS: [f64; 6] = [0.1, 1.0, 10.0, 40.0, 41.0, 300.0];
const LOSSES: [f64; 8] = [0.0, 1e-6, 1e-4, 5e-4, 6e-4, 5e-3, 1e-2, 0.2];
const LINES: [Option<f64>; 5] = [Some(1e4), Some(1.2e7), Some(1.3e7), Some(1e9), None];
const WINDOWS: [Option<u64>; 4] = [Some(2000), Some(64 << 10), Some(65 << 10), Some(64 << 20)];
const SIZES: [u64; 6] = [1, 10_000, 100_000, 256 << 10, 5 << 20, 64 << 20];

/// Calls `check` for each section of the sweep, with its position on the four axes.
fn sweep(mut check: impl FnMut(&dyn Fn([usize; 4]) -> SectionModel, [usize; 4])) {
    for congestion in ALL {
        let at = |[rtt, loss, line, window]: [usize; 4]| SectionModel {
            loss: LOSSES[loss],
            line_rate: LINES[line],
            window: WINDOWS[window],
            congestion,
            ..section(RTTS[rtt])
        };
        let places = |count: usize| (0..count).collect::<Vec<_>>();
        for (rtt, loss, line) in product(&places(RTTS.len()), &places(LOSSES.len()), &places(LINES.len())) {
            (0..WINDOWS.len()).for_each(|window| check(&at, [rtt, loss, line, window]));
        }
    }
}

/// The path is worse in one property and equal in all others. The tolerance is 1 % for rounds that end earlier, 6 % for
/// rounds that BBR loses.
#[test]
fn worse_section_is_never_faster() {
    sweep(|at, place| {
        let here = at(place);
        let tolerance = if here.congestion == CongestionControl::Bbr { 0.94 } else { 0.99 };
        for (axis, count, worse) in
            [(0, RTTS.len(), 1), (1, LOSSES.len(), 1), (2, LINES.len(), -1), (3, WINDOWS.len(), -1)]
        {
            let Some(other) = place[axis].checked_add_signed(worse).filter(|index| *index < count) else { continue };
            let mut there = place;
            there[axis] = other;
            let there = at(there);
            assert!(there.rate() <= here.rate() * 1.000_001, "{there:?} {} > {here:?} {}", there.rate(), here.rate());
            for size in SIZES {
                let [worse, better] = [there, here].map(|one| completion(&[one], size, &free_relays()).as_secs_f64());
                assert!(worse >= better * tolerance, "{size} bytes, {worse} by {there:?}, {better} by {here:?}");
            }
        }
    });
}

#[test]
fn time_grows_with_size_and_the_line_rate_is_never_exceeded() {
    sweep(|at, place| {
        let section = at(place);
        let times = SIZES.map(|size| completion(&[section], size, &free_relays()).as_secs_f64());
        assert!(times.is_sorted(), "{times:?} by {section:?}");
        let line = section.line_rate.unwrap_or(f64::MAX);
        assert!(SIZES.iter().zip(times).all(|(size, time)| *size as f64 / time <= line), "{times:?} by {section:?}");
    });
}
