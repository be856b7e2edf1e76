//! Random arrivals of several flows in successive phases: bursts, steady streams below or above the rate of the line,
//! random gaps, and pauses. A pattern has one or several packet sizes, and packets with or without ECN.

use ekiden_emulator::Nanos;
use ekiden_emulator::packet::{Ecn, Packet};
use ekiden_emulator::rng::SeededRng;
use ekiden_proto::units::Rate;

/// Rates with whole, fractional, long and short transmission times.
const RATES: [&str; 5] = ["12Mbit/s", "1Mbit/s", "9973kbit/s", "100Mbit/s", "977Mbit/s"];

/// Successive random numbers.
pub struct RandomDraws {
    rng: SeededRng,
    draws: u64,
}

impl RandomDraws {
    pub fn new(seed: u64, name: &str) -> Self {
        Self { rng: SeededRng::new(seed).derive(name), draws: 0 }
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.draws += 1;
        self.rng.bits(self.draws) % n
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}

/// Selects sizes, flows and ECN bits of the packets of a pattern.
struct PacketMix {
    sizes: u64,
    flows: u64,
    ecn: u64,
}

impl PacketMix {
    fn packet(&self, chance: &mut RandomDraws, number: u64, at: Nanos) -> Packet {
        let bytes = match self.sizes {
            0 => 1500,
            1 => chance.between(64, 1500),
            2 => [64, 1500][usize::from(chance.below(3) == 0)],
            _ => [576, 1400, 1500, 1514][usize::try_from(chance.below(4)).unwrap()],
        };
        let ecn = match self.ecn {
            0 => Ecn::NotCapable,
            1 => Ecn::Capable,
            _ => [Ecn::NotCapable, Ecn::Capable, Ecn::Marked][usize::try_from(chance.below(3)).unwrap()],
        };
        // Half of the packets belong to the first flow, so that one flow is the largest.
        let flow = if chance.below(2) == 0 { 0 } else { chance.below(self.flows) * 0x9e37_79b1 % 0xffff_fffb };
        Packet {
            number,
            at,
            bytes: u32::try_from(bytes).unwrap(),
            flow: u32::try_from(flow).unwrap(),
            source: u32::try_from(flow % 3).unwrap(),
            ecn,
            tag: number,
        }
    }
}

/// The arrivals of a seed, in order of time, and the rate of the line that they are made for.
pub fn pattern(seed: u64) -> (Vec<Packet>, Rate) {
    let mut chance = RandomDraws::new(seed, "arrivals");
    let rate: Rate = RATES[usize::try_from(seed % 5).unwrap()].parse().unwrap();
    let full = 1500 * 8_000_000_000 / rate.bits_per_second();
    let kind = PacketMix { sizes: chance.below(4), flows: chance.between(1, 8), ecn: chance.below(3) };
    let mut packets: Vec<Packet> = Vec::new();
    // Not every pattern starts at time 0.
    let mut now = chance.below(2) * chance.below(full);
    for _ in 0..chance.between(2, 8) {
        let count = chance.between(1, 80);
        // The gap between packets, in per cent of the transmission time of a full packet: 100 is exactly the rate.
        let (percent, jitter) = match chance.below(6) {
            0 => (0, false),
            1 => (chance.between(100, 300), false),
            2 => (chance.between(30, 99), false),
            3 => (chance.between(10, 150), true),
            4 => (100, false),
            _ => (50, false),
        };
        for _ in 0..count {
            packets.push(kind.packet(&mut chance, packets.len() as u64, now));
            let gap = full * percent / 100;
            now += if jitter { chance.below(2 * gap + 1) } else { gap };
        }
        now += match chance.below(4) {
            0 => full * chance.between(1, 1000),
            1 => full * chance.between(1, 20),
            _ => 0,
        };
    }
    (packets, rate)
}
