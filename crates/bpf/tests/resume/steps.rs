//! Single steps of `resume.h`, run by `take_step` of `bpf/resume_steps.bpf.c`, and a simulated connection.

use crate::stepper::Stepper;

pub const MSS: u32 = 1448;
pub const RTT_US: u32 = 100_000;
/// The value of `SO_MAX_PACING_RATE` that sets no limit.
pub const NO_LIMIT: u64 = u64::MAX;

/// `enum resume_phase`.
pub const WAITING: u32 = 1;
pub const REJECTED: u32 = 2;
pub const UNVALIDATED: u32 = 3;
pub const VALIDATING: u32 = 4;
pub const VALIDATED: u32 = 5;
pub const RETREATING: u32 = 6;
pub const RETREATED: u32 = 7;

/// Defines a structure of `resume.h`: one or two fields of 64 bits, and fields of 32 bits.
macro_rules! layout {
    ($name:ident { $($long:ident),+ } { $($field:ident),+ }) => {
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $(pub $long: u64,)+
            $(pub $field: u32,)+
        }

        impl $name {
            fn bytes(&self) -> Vec<u8> {
                let long = [$(self.$long),+].into_iter().flat_map(u64::to_ne_bytes);
                long.chain([$(self.$field),+].into_iter().flat_map(u32::to_ne_bytes)).collect()
            }

            fn read(mut bytes: &[u8]) -> Self {
                Self {
                    $($long: u64::from_ne_bytes(bytes.split_off(..8).expect("room").try_into().expect("eight")),)+
                    $($field: u32::from_ne_bytes(bytes.split_off(..4).expect("room").try_into().expect("four")),)+
                }
            }
        }
    };
}

layout!(State { deadline_us } {
    jump_bytes, saved_rtt_us, phase, reason, mss, before, target, sent, pipe, first, last, delivered, retransmitted, unused
});
layout!(Flow { now_us, max_rate } { rtt_us, mss, window, flight, delivered, retransmitted, una, nxt });

/// `enum op`.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Start,
    Rate,
    Ack,
    Congestion,
    Proven { window: u32 },
    CanGrow { in_loss: bool },
    LeaveRetreat,
    Follow { threshold: u32 },
    Limit { threshold: u32 },
}

impl Op {
    /// The number of the operation in `enum op`, and its argument.
    fn words(self) -> [u64; 2] {
        match self {
            Self::Start => [0, 0],
            Self::Rate => [1, 0],
            Self::Ack => [2, 0],
            Self::Congestion => [3, 0],
            Self::Proven { window } => [4, window.into()],
            Self::CanGrow { in_loss } => [5, in_loss.into()],
            Self::LeaveRetreat => [6, 0],
            Self::Follow { threshold } => [7, threshold.into()],
            Self::Limit { threshold } => [8, threshold.into()],
        }
    }
}

/// A connection in slow start, with the state that Careful Resume uses. Losses concern the first packets of the flight.
pub struct Connection {
    stepper: Stepper,
    pub state: State,
    pub flow: Flow,
    pub threshold: u32,
}

impl Connection {
    /// A connection with a window of 10 packets and a request for a jump to `packets`, saved at [`RTT_US`]. Its
    /// sequence numbers are about to wrap around.
    pub fn requesting(packets: u32) -> Self {
        let start = u32::MAX - 20_000;
        let state = State {
            deadline_us: 60_000_000,
            jump_bytes: packets * MSS,
            saved_rtt_us: RTT_US,
            phase: WAITING,
            ..State::default()
        };
        let flow = Flow {
            now_us: 1_000_000,
            max_rate: NO_LIMIT,
            rtt_us: RTT_US,
            mss: MSS,
            window: 10,
            flight: 0,
            delivered: 2,
            retransmitted: 0,
            una: start,
            nxt: start,
        };
        Self { stepper: Stepper::load("resume_steps"), state, flow, threshold: u32::MAX }
    }

    /// Runs one function of the header, and returns its result.
    pub fn step(&mut self, op: Op) -> u64 {
        let mut bytes = op.words().map(u64::to_ne_bytes).concat();
        bytes.extend(self.flow.bytes());
        bytes.extend(self.state.bytes());
        self.stepper.step("take_step", &mut bytes);
        assert_eq!(Flow::read(&bytes[16..]), self.flow, "the flow is read only");
        self.state = State::read(&bytes[16 + self.flow.bytes().len()..]);
        u64::from_ne_bytes(*bytes.first_chunk().expect("eight bytes"))
    }

    /// Runs a function whose result is a window or ssthresh, in packets.
    fn answer(&mut self, op: Op) -> u32 {
        u32::try_from(self.step(op)).expect("a window")
    }

    fn set_window(&mut self, answer: u32) {
        if answer != 0 {
            self.flow.window = answer;
        }
    }

    /// Starts a transmission, and sends as many of `packets` as the window permits. Returns the number of sent packets.
    pub fn transmit(&mut self, packets: u32) -> u32 {
        if self.flow.flight == 0 {
            let answer = self.answer(Op::Start);
            self.set_window(answer);
        }
        let sent = packets.min(self.flow.window.saturating_sub(self.flow.flight));
        self.flow.flight += sent;
        self.flow.nxt = self.flow.nxt.wrapping_add(sent * MSS);
        sent
    }

    /// Acknowledges the next `packets` packets. The window grows as in slow start if it may grow.
    pub fn acknowledge(&mut self, packets: u32) {
        self.flow.una = self.flow.una.wrapping_add(packets * MSS);
        self.acknowledge_selectively(packets);
        let threshold = self.answer(Op::LeaveRetreat);
        if threshold != 0 {
            self.threshold = threshold;
        }
        if self.step(Op::CanGrow { in_loss: false }) != 0 {
            let grown = (self.flow.window + packets).min(self.threshold);
            self.flow.window = grown.max(self.flow.window);
        }
    }

    /// Acknowledges `packets` packets behind a gap selectively (SACK). In recovery the window is ssthresh.
    pub fn acknowledge_selectively(&mut self, packets: u32) {
        self.flow.delivered += packets;
        self.flow.flight -= packets;
        let answer = self.answer(Op::Ack);
        self.set_window(answer);
        self.threshold = self.answer(Op::Follow { threshold: self.threshold });
        if self.state.phase == RETREATING {
            self.flow.window = self.threshold.min(self.flow.window.max(self.state.pipe / 2));
        }
    }

    /// Reports a loss: the kernel requests ssthresh, and the congestion control returns `threshold`.
    pub fn lose(&mut self, threshold: u32) {
        self.step(Op::Congestion);
        self.threshold = self.answer(Op::Limit { threshold });
        if self.state.phase == RETREATING {
            self.flow.window = self.threshold;
        }
    }
}
