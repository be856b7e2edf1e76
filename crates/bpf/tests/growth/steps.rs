//! Runs single steps of the algorithms.

use crate::stepper::Stepper;

/// The ssthresh of a connection before its first loss: `TCP_INFINITE_SSTHRESH` of the kernel.
pub const INFINITE_SSTHRESH: u64 = 0x7fff_ffff;

/// The functions of `tests/bpf/growth_steps.bpf.c`.
pub struct GrowthPrograms(Stepper);

impl GrowthPrograms {
    pub fn load() -> Self {
        Self(Stepper::load("growth_steps"))
    }

    /// Runs one function with `numbers` as its argument. Returns the argument as the function has changed it.
    pub fn run<const N: usize>(&self, function: &str, numbers: [u64; N]) -> [u64; N] {
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        self.0.step(function, &mut bytes);
        let mut words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
        std::array::from_fn(|_| words.next().expect("as many as before"))
    }
}

/// The congestion window of a connection, which one algorithm increases and reduces.
pub struct Window<'a> {
    steps: &'a GrowthPrograms,
    name: &'static str,
    packets: u64,
    part: u64,
    /// Further state of the algorithm: BIC's maximum, Hybla's ssthresh and rho.
    pub extra: [u64; 2],
}

impl<'a> Window<'a> {
    pub fn new(steps: &'a GrowthPrograms, name: &'static str, packets: u64) -> Self {
        Self { steps, name, packets, part: 0, extra: [0; 2] }
    }

    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// The window including its fraction of a packet.
    pub fn exact_packets(&self) -> f64 {
        self.packets as f64 + self.part as f64 / 2f64.powi(32)
    }

    pub fn grow(&mut self, acked: u64) {
        let [first, second] = self.extra;
        let numbers = [self.packets, self.part, acked, first, second];
        [self.packets, self.part, ..] = self.steps.run(&format!("step_{}_grow", self.name), numbers);
    }

    /// Grows the window for a round trip in which each packet has its own acknowledgement.
    pub fn round(&mut self) {
        for _ in 0..self.packets {
            self.grow(1);
        }
    }

    pub fn reduce(&mut self) {
        let numbers = [self.packets, self.extra[0]];
        [self.packets, self.extra[0]] = self.steps.run(&format!("step_{}_reduce", self.name), numbers);
    }

    /// The average window, as packets sent per round trip, when every `every`th packet is lost. The first half of the
    /// `2 * losses` losses is excluded.
    pub fn average(&mut self, every: u64, losses: u64) -> f64 {
        let (mut sent, mut rounds) = (0, 0.0);
        for loss in 0..2 * losses {
            if loss == losses {
                (sent, rounds) = (0, 0.0);
            }
            let mut left = every;
            while left > 0 {
                let round = left.min(self.packets);
                (sent, rounds, left) = (sent + round, rounds + round as f64 / self.packets as f64, left - round);
                self.grow(round);
            }
            self.reduce();
        }
        sent as f64 / rounds
    }
}
