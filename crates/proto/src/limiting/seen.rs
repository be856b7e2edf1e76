//! Sums over the samples of a session: of its whole life, or with decay, so that the last seconds count most.

use crate::direction::Direction;

/// Declares sums and the operations on all of them.
macro_rules! sums {
    ($($(#[$about:meta])* struct $name:ident { $($(#[$meta:meta])* $field:ident,)* })*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Default)]
        pub(super) struct $name { $($(#[$meta])* pub(super) $field: f64,)* }

        impl $name {
            pub(super) fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }

            pub(super) fn fade(&mut self, factor: f64) {
                $(self.$field *= factor;)*
            }
        }
    )*};
}

sums! {
    /// One direction of bytes in the pump. Times are in seconds.
    struct Flow {
        bytes,
        /// Pieces that they moved in.
        moves,
        /// Time in which there were bytes and no room.
        blocked,
        /// Time in which there were none, and it was not the client's turn to ask.
        waiting,
        /// The square of each wait for bytes, in s².
        squares,
        /// The part of `waiting` in which they waited for their turn under a rate of this relay.
        throttled,
    }

    /// One section. Times are in seconds.
    struct Section {
        /// Time with data to send, and the parts of it that the kernel knows a reason for.
        busy,
        rwnd_limited,
        sndbuf_limited,
        /// The part of it in which the congestion window was in the growth of its start.
        slow_start,
        /// Segments sent, and of those the ones that were sent again and had to be.
        sent,
        lost,
        /// Bytes that the peer has acknowledged.
        acknowledged,
        /// Segments received, and of those the ones out of order.
        segments_received,
        out_of_order,
        /// Bytes received in order.
        received,
        /// The number of samples: all following fields are sums over samples.
        samples,
        rtt,
        receive_rtt,
        /// Whether bytes waited to be read.
        unread,
        /// Whether the send buffer was full, and whether the bytes in it had all been sent.
        buffer_full,
        all_sent,
        /// Whether we pace it, and at how many bytes a second.
        paced,
        ceiling,
    }

    /// The relay's thread, in seconds.
    struct Thread {
        span,
        /// On a processor.
        on_cpu,
        /// Wanting one.
        queued,
    }
}

impl Flow {
    /// How long the wait for bytes is that a moment of waiting falls into, in seconds: many short waits and few long ones are
    /// told apart by the mean over time, not over waits.
    pub(super) fn mean_wait(&self) -> f64 {
        ratio(self.squares, self.waiting)
    }
}

impl Section {
    /// The mean over the samples.
    pub(super) fn mean(&self, sum: f64) -> f64 {
        ratio(sum, self.samples)
    }
}

impl Thread {
    /// The share of the time in which it wanted a processor, from 0 to 1, or had one.
    pub(super) fn cpu_demand(&self) -> f64 {
        ratio(self.on_cpu + self.queued, self.span)
    }
}

/// All of a session.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct SessionSums {
    pub(super) thread: Thread,
    /// By direction of bytes.
    flows: [Flow; 2],
    sections: [Section; 2],
}

impl SessionSums {
    pub(super) fn with_thread(thread: Thread) -> Self {
        Self { thread, ..Self::default() }
    }

    pub(super) const fn flow(&self, direction: Direction) -> &Flow {
        &self.flows[direction as usize]
    }

    pub(super) const fn section(&self, side: Direction) -> &Section {
        &self.sections[side as usize]
    }

    pub(super) const fn flow_mut(&mut self, direction: Direction) -> &mut Flow {
        &mut self.flows[direction as usize]
    }

    pub(super) const fn section_mut(&mut self, side: Direction) -> &mut Section {
        &mut self.sections[side as usize]
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.thread.add(&other.thread);
        self.flows.iter_mut().zip(&other.flows).for_each(|(flow, other)| flow.add(other));
        self.sections.iter_mut().zip(&other.sections).for_each(|(section, other)| section.add(other));
    }

    pub(super) fn fade(&mut self, factor: f64) {
        self.thread.fade(factor);
        self.flows.iter_mut().for_each(|flow| flow.fade(factor));
        self.sections.iter_mut().for_each(|section| section.fade(factor));
    }
}

/// A ratio, or 0 of nothing.
pub(super) fn ratio(numerator: f64, denominator: f64) -> f64 {
    if denominator > 0.0 { numerator / denominator } else { 0.0 }
}
