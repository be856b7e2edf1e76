//! The first visit and later visits of a client: sections between relays keep their congestion windows.

use super::*;

/// Payload bytes of a full segment on Ethernet, and its bytes on the wire with preamble, gap and checksum.
const SEGMENT: [f64; 2] = [1448.0, 1538.0];

/// Round-trip time of the path in ms, its line rate in Mbit/s, and for each of [`SIZES`] the time from the request to
/// the last byte in ms, at the first visit and at a later one.
type Row = (f64, f64, [[f64; 2]; 4]);

const SIZES: [u64; 4] = [10_000, 100_000, 1 << 20, 8 << 20];

/// Computed as a round trip for the request, one for each of n - 1 rounds that double from ten packets (RFC 6928), and
/// the rest at the rate of the line. A later visit has no rounds.
const ONE_SECTION: [Row; 6] = [
    (50.0, 100.0, [[51.0, 51.0], [155.0, 58.0], [362.0, 139.0], [985.0, 763.0]]),
    (50.0, 1000.0, [[50.0, 50.0], [150.0, 51.0], [351.0, 59.0], [508.0, 121.0]]),
    (100.0, 100.0, [[101.0, 101.0], [305.0, 108.0], [712.0, 189.0], [1357.0, 813.0]]),
    (100.0, 1000.0, [[100.0, 100.0], [300.0, 101.0], [701.0, 109.0], [1008.0, 171.0]]),
    (300.0, 100.0, [[301.0, 301.0], [905.0, 308.0], [2112.0, 389.0], [3099.0, 1013.0]]),
    (300.0, 1000.0, [[300.0, 300.0], [900.0, 301.0], [2101.0, 309.0], [3008.0, 371.0]]),
];

/// Three equal sections: their rounds take a third of the time, and overlap.
const THREE_SECTIONS: [Row; 6] = [
    (50.0, 100.0, [[51.0, 51.0], [88.0, 58.0], [187.0, 139.0], [811.0, 763.0]]),
    (50.0, 1000.0, [[50.0, 50.0], [84.0, 51.0], [151.0, 59.0], [223.0, 121.0]]),
    (100.0, 100.0, [[101.0, 101.0], [171.0, 108.0], [318.0, 189.0], [941.0, 813.0]]),
    (100.0, 1000.0, [[100.0, 100.0], [167.0, 101.0], [301.0, 109.0], [408.0, 171.0]]),
    (300.0, 100.0, [[301.0, 301.0], [505.0, 308.0], [912.0, 389.0], [1557.0, 1013.0]]),
    (300.0, 1000.0, [[300.0, 300.0], [500.0, 301.0], [901.0, 309.0], [1208.0, 371.0]]),
];

fn ready(milliseconds: f64) -> SectionModel {
    SectionModel { connection: Connection::Ready, ..section(milliseconds) }
}

fn milliseconds(sections: &[SectionModel], size: u64) -> f64 {
    completion(sections, size, &free_relays()).as_secs_f64() * 1e3
}

#[test]
fn a_later_visit_has_no_rounds_of_slow_start() {
    for (count, rows) in [(1, ONE_SECTION), (3, THREE_SECTIONS)] {
        for (round_trip, line, times) in rows {
            let part = SectionModel {
                line_rate: Some(line * 125_000.0 * SEGMENT[0] / SEGMENT[1]),
                window: Some(u64::MAX),
                ..ready(round_trip / f64::from(count))
            };
            for (size, [first, later]) in SIZES.into_iter().zip(times) {
                let first_visit = vec![part; count as usize];
                let later_visit: Vec<_> = first_visit.iter().map(|section| section.after_transfer(size)).collect();
                for (sections, expected) in [(first_visit, first), (later_visit, later)] {
                    let found = milliseconds(&sections, size);
                    let place = format!("{count} x {round_trip} ms, {line} Mbit/s, {size} bytes");
                    assert!((found - expected).abs() < 1.0, "{place}: {found} ms, not {expected}");
                }
            }
        }
    }
}

/// The congestion window after a small transfer is small, and the next transfer starts with that window.
#[test]
fn a_window_grows_from_visit_to_visit() {
    let [once, twice] = [10, 20].map(|packets| ready(100.0).after_transfer(packets * 1448));
    assert_eq!(once.connection, Connection::Used(20 * 1448));
    assert_eq!(once.after_transfer(10 * 1448).connection, twice.connection);
    let rounds = |section: SectionModel| (milliseconds(&[section], 70 * 1448) / 100.0).round() as u64 - 1;
    assert_eq!([ready(100.0), once, twice].map(rounds), [2, 2, 1]);
    let small = SectionModel { window: Some(64 << 10), ..ready(100.0) };
    assert_eq!(small.after_transfer(8 << 20).connection, Connection::Used(64 << 10), "limited by the buffers");
}

#[test]
fn only_connections_between_relays_are_reused() {
    let direct = section(100.0);
    assert_eq!(direct.after_transfer(1 << 20), direct);
    // At the second visit the slow start of the section to the server is the slowest, and the whole chain waits for it.
    let [first, later] = [[ready(90.0), section(10.0)], [ready(90.0).after_transfer(1 << 20), section(10.0)]];
    assert_near(milliseconds(&first, 1 << 20), 110.0 + 6.0 * 90.0, 0.02);
    assert_near(milliseconds(&later, 1 << 20), 110.0 + 6.0 * 10.0, 0.1);
}

/// A loss-based sender starts with its steady window. With BBR, or without losses, the section keeps its last window.
#[test]
fn a_lossy_section_starts_at_its_steady_rate() {
    for congestion in ALL {
        let lossy = SectionModel { loss: 0.01, congestion, line_rate: Some(1e7), ..ready(40.0) };
        let used = lossy.after_transfer(1 << 20);
        assert_eq!(used.connection == Connection::Settled, congestion != CongestionControl::Bbr);
    }
    let settled = SectionModel { loss: 0.01, connection: Connection::Settled, ..section(40.0) };
    let rate = (8 << 20) as f64 / (milliseconds(&[settled], 8 << 20) / 1e3);
    assert_near(rate, settled.rate(), 0.02);
}

#[test]
fn a_later_visit_is_never_slower_without_losses() {
    sweep(|at, place| {
        let section = at(place);
        if section.loss > 0.0 {
            return;
        }
        let first = SectionModel { connection: Connection::Ready, ..section };
        for size in super::SIZES {
            let [first, later] = [first, first.after_transfer(size)].map(|section| milliseconds(&[section], size));
            assert!(later <= first * 1.000_001, "{size} bytes, {later} after {first} ms by {section:?}");
        }
    });
}
