//! Runs single steps of the algorithms in the kernel.

use libbpf_rs::{Object, ObjectBuilder, ProgramInput};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/growth_steps.bpf.o"));

/// The programs of `tests/bpf/growth_steps.bpf.c`.
pub struct GrowthPrograms(Object);

impl GrowthPrograms {
    pub fn load() -> Self {
        let open = ObjectBuilder::default().open_memory(OBJECT).expect("clang has made it");
        Self(open.load().expect("the kernel takes it: run the test as root"))
    }

    /// Runs one program; `numbers` is its argument, and holds its results afterwards.
    pub fn run<const N: usize>(&self, program: &str, numbers: [u64; N]) -> [u64; N] {
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let program = self.0.progs_mut().find(|found| found.name() == program).expect(program);
        let input = ProgramInput { context_in: Some(&mut bytes), ..Default::default() };
        let output = program.test_run(input).expect("it runs");
        assert_eq!(output.return_value, 0);
        let mut words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
        std::array::from_fn(|_| words.next().expect("as many as before"))
    }
}

/// A window that grows and shrinks as one algorithm says.
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

    /// The window with the part of a packet that is kept beside it.
    pub fn exact_packets(&self) -> f64 {
        self.packets as f64 + self.part as f64 / 2f64.powi(32)
    }

    pub fn grow(&mut self, acked: u64) {
        let [first, second] = self.extra;
        let numbers = [self.packets, self.part, acked, first, second];
        [self.packets, self.part, ..] = self.steps.run(&format!("step_{}_grow", self.name), numbers);
    }

    /// A round trip, one acknowledgement after the other.
    pub fn round(&mut self) {
        for _ in 0..self.packets {
            self.grow(1);
        }
    }

    pub fn reduce(&mut self) {
        let numbers = [self.packets, self.extra[0]];
        [self.packets, self.extra[0]] = self.steps.run(&format!("step_{}_reduce", self.name), numbers);
    }

    /// The average window when every `every`th packet is lost, in as many round trips as windows have been sent. The
    /// first half of the losses is not looked at.
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
