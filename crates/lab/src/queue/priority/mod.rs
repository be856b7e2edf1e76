//! Priority drop, static and dynamic: RED that hits the packets of whoever takes the most `n` times as often (FIT2013, 12th
//! Forum on Information Technology, part 4, from page 37 on: fairness between CUBIC and Compound TCP). The arithmetic is
//! [`ekiden_proto::aqm::priority`], which the tc programs of `ekiden aqm` mirror.
//!
//! # Specification
//!
//! That of [`super::red`], without `gentle`, and with this:
//!
//! * A packet is of one of two classes, the heavy and the others. There is one `avg`, but a `count` for each class; where
//!   `count` is set without a hit (below `min`, from `top` on), both are.
//! * With `n` in 2^-16, rounded to the nearest, the `pb` of the heavy is `min(1, pb * n / 2^16)`.
//!
//! **Static**: a packet is heavy if its sender is one of the addresses of the hosts in `heavy`.
//!
//! **Dynamic**: a packet is heavy if its connection (`Packet::flow`) is the heavy connection. Before a packet is judged it
//! is counted, whatever will become of it:
//!
//! 1. Every `rec_int`-th packet is recorded: its connection joins a history of the last `hist_len`, once the oldest has left
//!    it if it is full. If 8 other connections of the history have the same lower 8 bits and are counted, this place in the
//!    history is nobody's.
//! 2. At every `sta_int`-th packet the connection that is most often in the history becomes the heavy one; of several,
//!    that whose number of places changed last. There is none while the history is empty or nobody's.
//!
//! # Differences
//!
//! The paper's text leaves open what these say:
//!
//! | | here | the paper |
//! |---|---|---|
//! | `count` | one for each class: the heavy are hit exactly `n` times as often | not said |
//! | above `max` | all are dropped, heavy or not | the same |
//! | order | recorded, determined, then judged | not said |
//! | equally frequent connections | the one whose places changed last | not said |
//! | many connections | a table of 256 sets of 8 | not said |

use ekiden_proto::aqm::priority::{self, DynamicParams, DynamicState, StaticParams};
use ekiden_proto::aqm::{Arrival, Verdict, red};
use ekiden_proto::units::Rate;

use crate::conditions::{DynamicPrioritySettings, StaticPrioritySettings};
use crate::dice::SeededRng;
use crate::queue::managed::{DropPolicy, ManagedQueue};
use crate::queue::red::red_params;

#[cfg(test)]
mod tests;

/// A queue that drops the packets of known senders more.
pub type StaticPriorityDropQueue = ManagedQueue<StaticPriorityPolicy>;

/// Its law.
#[derive(Debug)]
pub struct StaticPriorityPolicy {
    params: StaticParams,
    state: red::RedState,
}

impl StaticPriorityDropQueue {
    /// An empty queue.
    #[must_use]
    pub fn new(settings: &StaticPrioritySettings, rate: Option<Rate>, dice: SeededRng) -> Self {
        let red = red_params(&settings.red_settings(), settings.n, rate, dice);
        Self::with_policy(StaticPriorityPolicy {
            params: StaticParams::new(red, &settings.heavy.sources),
            state: red::RedState::default(),
        })
    }
}

impl DropPolicy for StaticPriorityPolicy {
    fn decide(&mut self, arrival: &Arrival) -> Verdict {
        priority::judge_static(&self.params, &mut self.state, arrival)
    }

    fn set_rate(&mut self, rate: Option<Rate>) {
        self.params.red.typical_packet_time = red::typical_packet_time(rate.map(Rate::bits_per_second));
    }
}

/// A queue that drops the packets of the most frequent connection more.
pub type DynamicPriorityDropQueue = ManagedQueue<DynamicPriorityPolicy>;

/// Its law.
#[derive(Debug)]
pub struct DynamicPriorityPolicy {
    params: DynamicParams,
    state: Box<DynamicState>,
}

impl DynamicPriorityDropQueue {
    /// An empty queue.
    #[must_use]
    pub fn new(settings: &DynamicPrioritySettings, rate: Option<Rate>, dice: SeededRng) -> Self {
        let red = red_params(&settings.red_settings(), settings.n, rate, dice);
        let DynamicPrioritySettings { rec_int, sta_int, hist_len, .. } = *settings;
        Self::with_policy(DynamicPriorityPolicy {
            params: DynamicParams::new(red, rec_int, sta_int, hist_len),
            state: Box::default(),
        })
    }
}

impl DropPolicy for DynamicPriorityPolicy {
    fn decide(&mut self, arrival: &Arrival) -> Verdict {
        priority::judge_dynamic(&self.params, &mut self.state, arrival)
    }

    fn set_rate(&mut self, rate: Option<Rate>) {
        self.params.red.typical_packet_time = red::typical_packet_time(rate.map(Rate::bits_per_second));
    }
}
