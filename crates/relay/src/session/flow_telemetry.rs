//! Connects the pump to the listener's totals, to the accounts of the session, to fair shares and to tuning.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use ekiden_proto::direction::Direction;

use crate::accounting::SessionAccounts;
use crate::ingress::listener::ListenerContext;
use crate::pump::{Allowance, FlowObserver, TransferMethod};
use crate::shaping::autotune::{SectionTuning, Tuner};
use crate::shaping::fair_share::PacedSocket;

/// Counts the bytes of a session for its listener, and reports them to the pacing and the tuning of its two sections.
pub struct FlowTelemetry {
    context: Rc<ListenerContext>,
    /// The accounts to which the bytes are charged.
    pub accounts: SessionAccounts,
    down: SendingSection,
    up: SendingSection,
}

/// The section that sends the bytes of one direction.
#[derive(Debug, Default)]
struct SendingSection {
    paced: RefCell<Option<Rc<PacedSocket>>>,
    tuning: RefCell<SectionTuning>,
}

impl FlowTelemetry {
    /// Creates the telemetry of a session of `context`, with sections that are neither paced nor tuned.
    #[must_use]
    pub fn new(context: Rc<ListenerContext>) -> Rc<Self> {
        let accounts = SessionAccounts::new(context.account());
        Rc::new(Self { context, accounts, down: SendingSection::default(), up: SendingSection::default() })
    }

    fn section(&self, direction: Direction) -> &SendingSection {
        match direction {
            Direction::Down => &self.down,
            Direction::Up => &self.up,
        }
    }

    /// Sets the paced socket that sends the bytes of `direction`; `None` if the interface is not shared. The previous
    /// paced socket is deactivated.
    pub fn set_paced_by(&self, direction: Direction, socket: Option<Rc<PacedSocket>>) {
        if let Some(before) = self.section(direction).paced.replace(socket) {
            before.deactivate();
        }
    }

    /// Sets the tuning of the section that sends the bytes of `direction`.
    pub fn set_tuning(&self, direction: Direction, tuning: SectionTuning) {
        self.section(direction).tuning.replace(tuning);
    }

    /// Returns the tuner of the section that sends the bytes of `direction`.
    #[must_use]
    pub fn tuner(&self, direction: Direction) -> Option<Rc<Tuner>> {
        self.section(direction).tuning.borrow().tuner().cloned()
    }

    /// Sets the weight of both sections in the shares of their interfaces.
    pub fn set_weight(&self, weight: u32) {
        for section in [&self.down, &self.up] {
            section.paced.borrow().iter().for_each(|socket| socket.set_weight(weight));
        }
    }
}

impl fmt::Debug for FlowTelemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowTelemetry").field("down", &self.down).field("up", &self.up).finish_non_exhaustive()
    }
}

impl FlowObserver for FlowTelemetry {
    fn on_moved(&self, direction: Direction, bytes: u64, transfer: TransferMethod) {
        self.accounts.record(direction, bytes);
        if let Some(socket) = &*self.section(direction).paced.borrow() {
            socket.record_bytes(bytes);
        }
        // Bytes of either direction affect both sections: one sends them, the other acknowledges them.
        for section in [&self.down, &self.up] {
            let mut tuning = section.tuning.borrow_mut();
            tuning.on_bytes_moved(bytes, &self.context.thread.tuning, &self.context.config.congestion);
        }
        let totals = self.context.totals();
        let total = match (direction, transfer) {
            (Direction::Down, TransferMethod::Copied) => &totals.down_copied,
            (Direction::Down, TransferMethod::Spliced) => &totals.down_spliced,
            (Direction::Up, TransferMethod::Copied) => &totals.up_copied,
            (Direction::Up, TransferMethod::Spliced) => &totals.up_spliced,
        };
        total.inc_by(bytes);
    }

    fn on_stall_end(&self, direction: Direction, span: Duration) {
        self.context.totals().stalled_seconds(direction).inc_by(span.as_secs_f64());
    }

    fn on_queue_change(&self, direction: Direction, change: i64) {
        self.context.totals().queued_bytes(direction).inc_by(change);
    }

    fn on_record_size(&self, direction: Direction, bytes: usize) {
        self.section(direction).tuning.borrow().tuner().iter().for_each(|tuner| tuner.set_max_record(bytes));
    }

    fn reserve(&self, direction: Direction) -> Allowance {
        self.accounts.reserve(direction)
    }

    fn is_tuned(&self, direction: Direction) -> bool {
        self.section(direction).tuning.borrow().tuner().is_some_and(|tuner| tuner.tunes_timers())
    }

    fn is_last_session(&self, direction: Direction) -> bool {
        // The next session of the previous relay belongs to the new process. Dialled sections end with their pools.
        direction == Direction::Down && self.context.thread.drain_state.is_draining()
    }
}
