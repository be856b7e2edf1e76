//! Single steps of the arithmetic of `ctcp.h`, run by `take_step` of `bpf/ctcp_steps.bpf.c`.

use crate::stepper::Stepper;

/// Fractions of a packet in `ctcp.h` have the unit 1/256.
pub(crate) const FRACTION: u32 = 256;
/// An unknown value.
pub(crate) const NONE: u32 = u32::MAX;

/// Defines `struct ctcp`, with its conversion to words and from words.
macro_rules! state {
    ($($field:ident),*) => {
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct State {
            $(pub(crate) $field: u32,)*
        }

        impl State {
            fn words(&self) -> Vec<u32> {
                vec![$(self.$field),*]
            }

            fn read(mut words: impl Iterator<Item = u32>) -> Self {
                Self { $($field: words.next().expect("there is a word for each field"),)* }
            }
        }
    };
}

state!(
    cwnd,
    dwnd,
    cwnd_part,
    dwnd_part,
    step,
    prior_cwnd,
    prior_dwnd,
    gamma,
    settling,
    queued,
    reno_queued,
    base_us,
    base_before_us,
    base_since_ms,
    group,
    group_us,
    stuck_since_ms,
    stuck_rounds,
    stuck_window,
    stuck_low_us,
    stuck_high_us
);

/// `struct ctcp_round`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Round {
    pub(crate) rtt_us: u32,
    pub(crate) samples: u32,
    pub(crate) used: u32,
    pub(crate) now_ms: u32,
}

impl State {
    pub(crate) fn window(&self) -> u32 {
        self.cwnd + self.dwnd
    }

    pub(crate) fn base_us(&self) -> u32 {
        self.base_us.min(self.base_before_us)
    }
}

/// An event of a connection, as in `enum op`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Start { window: u32 },
    Follow { window: u32, slow_start: bool },
    Grow { acked: u32 },
    Sample { rtt_us: u32 },
    EndRound { round: Round, slow_start: bool },
    Reduce,
    TuneGamma,
    FixGamma { packets: u32 },
    Undo { window: u32 },
    Timeout { window: u32 },
    EndSlowStart,
    EndRecovery { round: Round },
}

impl Op {
    /// The number of the event in `enum op`, its argument, whether the connection is in slow start, and the round.
    fn arguments(self) -> (u32, u32, bool, Round) {
        let none = Round::default();
        match self {
            Self::Start { window } => (0, window, false, none),
            Self::Follow { window, slow_start } => (1, window, slow_start, none),
            Self::Grow { acked } => (2, acked, false, none),
            Self::Sample { rtt_us } => (3, rtt_us, false, none),
            Self::EndRound { round, slow_start } => (4, 0, slow_start, round),
            Self::Reduce => (5, 0, false, none),
            Self::TuneGamma => (6, 0, false, none),
            Self::FixGamma { packets } => (7, packets, false, none),
            Self::Undo { window } => (8, window, false, none),
            Self::Timeout { window } => (9, window, false, none),
            Self::EndSlowStart => (10, 0, false, none),
            Self::EndRecovery { round } => (11, 0, false, round),
        }
    }
}

/// Runs `take_step` of `bpf/ctcp_steps.bpf.c`.
pub(crate) struct CtcpProgram(Stepper);

impl CtcpProgram {
    pub(crate) fn load() -> Self {
        Self(Stepper::load("ctcp_steps"))
    }

    pub(crate) fn run(&self, state: &mut State, op: Op) {
        let (number, about, slow_start, round) = op.arguments();
        let head = [number, about, u32::from(slow_start), round.rtt_us, round.samples, round.used, round.now_ms];
        let words = head.into_iter().chain(state.words());
        let mut bytes = words.flat_map(u32::to_ne_bytes).collect::<Vec<_>>();
        self.0.step("take_step", &mut bytes);
        let (words, _) = bytes.as_chunks::<4>();
        *state = State::read(words.iter().skip(head.len()).map(|word| u32::from_ne_bytes(*word)));
    }

    /// A connection in congestion avoidance.
    pub(crate) fn start(&self, window: u32, base_us: u32) -> State {
        let mut state = State::default();
        self.run(&mut state, Op::Start { window });
        self.run(&mut state, Op::Sample { rtt_us: base_us });
        state
    }

    /// Ends a round trip of `rtt_us` microseconds in which the whole window was in use.
    pub(crate) fn round(&self, state: &mut State, rtt_us: u32, now_ms: u32) {
        let round = Round { rtt_us, samples: 3, used: state.window(), now_ms };
        self.run(state, Op::Sample { rtt_us });
        self.run(state, Op::EndRound { round, slow_start: false });
    }
}
