//! The model of paths against a simulation of senders, packet by packet: the source of the constants of `path::model`.
//!
//! One sender, a line of 100 Mbit/s with an unbounded queue, 4 MiB of buffer, and independent random losses. Every size
//! is simulated 59 times; the median is compared with the prediction. BBR is not here: it was measured in the
//! laboratory.
//!
//! ```sh
//! cargo run --release -p ekiden-proto --example senders
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use ekiden_proto::path::model::{self, CongestionControl, Connection, RelayCosts, SectionModel};

mod sender;
use sender::Sender;

const MSS: u16 = 1448;
/// 100 Mbit/s in packets of 1500 bytes.
const LINE: f64 = 12.5e6 / 1500.0;
/// The buffers, in packets.
const ROOM: f64 = 2896.0;
const SEEDS: u64 = 59;
/// 10 kB, 256 KiB, 4 MiB and 64 MiB.
const SIZES: [u64; 4] = [7, 182, 2897, 46_346];

/// A packet under way.
struct Packet {
    number: u64,
    /// When its acknowledgement is there, or would be.
    answered: f64,
    lost: bool,
}

/// xorshift64* (Vigna 2016).
struct XorShift64(u64);

impl XorShift64 {
    fn next_f64(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// How long so many packets take, from the departure of the first to the arrival of the last, in seconds. A packet that is lost
/// is sent again when its acknowledgement would have been there, as RACK does; if nothing is behind it a probe costs two
/// round trips.
fn simulate(section: &SectionModel, packets: u64, seed: u64) -> f64 {
    let rtt = section.rtt.as_secs_f64();
    let mut rng = XorShift64(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut sender = Sender::new(section.congestion, rtt);
    let mut under_way: VecDeque<Packet> = VecDeque::new();
    let (mut unsent, mut next, mut arrived, mut now, mut line_free) = (packets, 0, 0, 0.0_f64, 0.0_f64);
    loop {
        while unsent > 0 && (under_way.is_empty() || sender.can_send(under_way.len() as f64, ROOM)) {
            line_free = line_free.max(now) + 1.0 / LINE;
            let lost = rng.next_f64() < section.loss;
            under_way.push_back(Packet { number: next, answered: line_free + rtt, lost });
            sender.on_sent();
            (unsent, next) = (unsent - 1, next + 1);
        }
        let Some(packet) = under_way.pop_front() else { return now - rtt };
        now = now.max(packet.answered);
        if packet.lost {
            let alone = under_way.is_empty();
            now += if alone { 2.0 * rtt } else { 0.0 };
            unsent += 1;
            sender.on_lost(packet.number, next);
            continue;
        }
        arrived += 1;
        if arrived == packets {
            return now - rtt;
        }
        let oldest = under_way.front().map(|packet| packet.number);
        sender.on_ack(packet.number, next, oldest, now, (line_free - now).max(0.0));
    }
}

fn main() {
    println!(
        "| sender | loss | round trip | packets | simulated, ms | predicted, ms | |\n|---|--:|--:|--:|--:|--:|--:|"
    );
    let mut errors = Vec::new();
    for congestion in [CongestionControl::Reno, CongestionControl::Cubic] {
        for loss in [0.000_05, 0.0005, 0.001, 0.005, 0.01] {
            for milliseconds in [5, 10, 40, 150] {
                let line = Some(model::payload_rate(12.5e6, MSS));
                let rtt = Duration::from_millis(milliseconds);
                let connection = Connection::New;
                let section =
                    SectionModel { rtt, loss, window: None, line_rate: line, congestion, mss: MSS, connection };
                errors.extend(SIZES.map(|packets| compare(&section, packets)));
            }
        }
    }
    errors.sort_by(f64::total_cmp);
    let at = |share: f64| 100.0 * errors[((errors.len() - 1) as f64 * share).round() as usize];
    println!("\n{} rows: half within {:.1} %, nine of ten within {:.1} %", errors.len(), at(0.5), at(0.9));
}

/// Prints a row, handshake and request included, and says how far the prediction is off.
fn compare(section: &SectionModel, packets: u64) -> f64 {
    let request = 2.0 * section.rtt.as_secs_f64();
    let mut times: Vec<f64> = (1..=SEEDS).map(|seed| simulate(section, packets, seed) + request).collect();
    times.sort_by(f64::total_cmp);
    let [low, half, high] = [0.1, 0.5, 0.9].map(|share| times[((times.len() - 1) as f64 * share) as usize] * 1e3);
    let predicted =
        model::completion(&[*section], packets * u64::from(MSS), &RelayCosts::default()).as_secs_f64() * 1e3;
    let error = predicted / half - 1.0;
    println!(
        "| {:?} | {} % | {:?} | {packets} | {half:.0} ({low:.0} – {high:.0}) | {predicted:.0} | {:+.0} % |",
        section.congestion,
        section.loss * 100.0,
        section.rtt,
        error * 100.0,
    );
    error.abs()
}
