//! Sums over the samples of a session: of the whole session, or with exponential decay, so that the last seconds count
//! most.

use crate::direction::Direction;

/// Declares structs of sums, with their addition and decay.
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
    /// The pump's sums of one direction. Times are in seconds.
    struct Flow {
        bytes,
        /// Number of pieces in which the bytes were transferred.
        moves,
        /// Time in which bytes were ready and there was no room to send them.
        blocked,
        /// Time spent waiting for bytes, without the time in which it was the client's turn to send.
        waiting,
        /// The sum of the squares of the waits for bytes, in s².
        squares,
        /// The part of `waiting` in which bytes were held back by a rate limit of this relay.
        throttled,
    }

    /// The sums of one section. Times are in seconds.
    struct Section {
        /// Time with data to send, and the parts of it in which the receive window or the send buffer limited the
        /// sender.
        busy,
        rwnd_limited,
        sndbuf_limited,
        /// The part of `busy` in which the congestion window was in slow start.
        slow_start,
        /// Segments sent, and the number of those that were lost (retransmissions without the spurious ones).
        sent,
        lost,
        /// Bytes that the peer has acknowledged.
        acknowledged,
        /// Segments received, and the number of those that arrived out of order.
        segments_received,
        out_of_order,
        /// Bytes received in order.
        received,
        /// Number of samples; all following fields are sums over samples.
        samples,
        rtt,
        receive_rtt,
        /// Samples in which received bytes waited to be read.
        unread,
        /// Samples in which the send buffer was full, and those in which, in addition, all of it was in flight.
        buffer_full,
        all_sent,
        /// Samples in which the relay paced the section, and the sum of the pacing rates in bytes per second.
        paced,
        ceiling,
    }

    /// The times of the relay's thread, in seconds.
    struct Thread {
        span,
        /// Time on a processor.
        on_cpu,
        /// Time spent waiting for a processor.
        queued,
    }
}

impl Flow {
    /// Expected duration of the wait for bytes at a random moment of waiting, in seconds. This mean is weighted by
    /// time, not by wait, and so distinguishes many short waits from few long ones.
    pub(super) fn mean_wait(&self) -> f64 {
        ratio(self.squares, self.waiting)
    }
}

impl Section {
    /// The mean over the samples of a field that is a sum over samples.
    pub(super) fn mean(&self, sum: f64) -> f64 {
        ratio(sum, self.samples)
    }
}

impl Thread {
    /// The share of the time in which the thread ran or waited for a processor, from 0 to 1.
    pub(super) fn cpu_demand(&self) -> f64 {
        ratio(self.on_cpu + self.queued, self.span)
    }
}

/// All sums of a session.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct SessionSums {
    pub(super) thread: Thread,
    /// Indexed by the direction of the bytes.
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

/// The ratio of two values; 0 if the denominator is not positive.
pub(super) fn ratio(numerator: f64, denominator: f64) -> f64 {
    if denominator > 0.0 { numerator / denominator } else { 0.0 }
}
