//! Steps of `resume.h`, taken by the function of `bpf/resume_steps.bpf.c`, and a connection that takes them.

use crate::stepper::Stepper;

pub const MSS: u32 = 1448;
pub const RTT_US: u32 = 100_000;
/// `SO_MAX_PACING_RATE` that is not set.
pub const NO_LIMIT: u64 = u64::MAX;

/// `enum resume_phase`.
pub const WAITING: u32 = 1;
pub const REJECTED: u32 = 2;
pub const UNVALIDATED: u32 = 3;
pub const VALIDATING: u32 = 4;
pub const VALIDATED: u32 = 5;
pub const RETREATING: u32 = 6;
pub const RETREATED: u32 = 7;

/// A structure of the header: one field of 64 bits or two, and fields of 32 bits.
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
    /// Its number and its argument.
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

/// A connection in slow start, as far as Careful Resume knows it. Packets are lost from the front of the flight.
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

    /// Runs one function of the header, and returns its answer.
    pub fn step(&mut self, op: Op) -> u64 {
        let mut bytes = op.words().map(u64::to_ne_bytes).concat();
        bytes.extend(self.flow.bytes());
        bytes.extend(self.state.bytes());
        self.stepper.step("take_step", &mut bytes);
        assert_eq!(Flow::read(&bytes[16..]), self.flow, "the flow is read only");
        self.state = State::read(&bytes[16 + self.flow.bytes().len()..]);
        u64::from_ne_bytes(*bytes.first_chunk().expect("eight bytes"))
    }

    /// The answer is a window.
    fn answer(&mut self, op: Op) -> u32 {
        u32::try_from(self.step(op)).expect("a window")
    }

    fn set_window(&mut self, answer: u32) {
        if answer != 0 {
            self.flow.window = answer;
        }
    }

    /// Begins a transmission, and sends as many of `packets` as the window lets it. Returns how many.
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

    /// The next `packets` arrive and are acknowledged; slow start, where the window may grow.
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

    /// `packets` arrive behind a gap, and are acknowledged selectively. In recovery the window is ssthresh.
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

    /// The kernel asks for ssthresh, as at a loss, and the congestion control answers with `threshold`.
    pub fn lose(&mut self, threshold: u32) {
        self.step(Op::Congestion);
        self.threshold = self.answer(Op::Limit { threshold });
        if self.state.phase == RETREATING {
            self.flow.window = self.threshold;
        }
    }
}
