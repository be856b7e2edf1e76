//! Connects the pump to the listener's totals, to the accounts of the session, to fair shares and to tuning.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::direction::Direction;

use crate::accounting::{Account, SessionAccounts};
use crate::events::metrics::listeners::ListenerTotals;
use crate::pump::{Allowance, FlowObserver, TransferMethod};
use crate::shaping::autotune::Tuner;
use crate::shaping::fair_share::PacedSocket;

/// Counts the bytes of a session for its listener, and reports them to the pacing and the tuning of its two sections.
#[derive(Debug)]
pub struct FlowTelemetry {
    totals: Arc<ListenerTotals>,
    /// The accounts that the bytes count on.
    pub accounts: SessionAccounts,
    down: SendingSection,
    up: SendingSection,
}

/// The section that sends the bytes of one direction.
#[derive(Debug, Default)]
struct SendingSection {
    paced: RefCell<Option<Rc<PacedSocket>>>,
    tuner: RefCell<Option<Rc<Tuner>>>,
}

impl FlowTelemetry {
    /// Telemetry of a session whose sections are neither paced nor tuned.
    #[must_use]
    pub fn new(totals: Arc<ListenerTotals>, account: Arc<Account>) -> Rc<Self> {
        let accounts = SessionAccounts::new(account);
        Rc::new(Self { totals, accounts, down: SendingSection::default(), up: SendingSection::default() })
    }

    fn section(&self, direction: Direction) -> &SendingSection {
        match direction {
            Direction::Down => &self.down,
            Direction::Up => &self.up,
        }
    }

    /// Sets the paced socket that sends the bytes of `direction`; `None` where its interface is not shared.
    pub fn set_paced_by(&self, direction: Direction, socket: Option<Rc<PacedSocket>>) {
        if let Some(before) = self.section(direction).paced.replace(socket) {
            before.deactivate();
        }
    }

    /// Sets the tuner of the section that sends the bytes of `direction`; `None` where its profile asks for none.
    pub fn set_tuner(&self, direction: Direction, tuner: Option<Rc<Tuner>>) {
        self.section(direction).tuner.replace(tuner);
    }

    /// The tuner of the section that sends the bytes of `direction`.
    #[must_use]
    pub fn tuner(&self, direction: Direction) -> Option<Rc<Tuner>> {
        self.section(direction).tuner.borrow().clone()
    }

    /// Sets the weight of both sections in the shares of their interfaces.
    pub fn set_weight(&self, weight: u32) {
        for section in [&self.down, &self.up] {
            section.paced.borrow().iter().for_each(|socket| socket.set_weight(weight));
        }
    }
}

impl FlowObserver for FlowTelemetry {
    fn on_moved(&self, direction: Direction, bytes: u64, transfer: TransferMethod) {
        self.accounts.record(direction, bytes);
        if let Some(socket) = &*self.section(direction).paced.borrow() {
            socket.record_bytes(bytes);
        }
        // Bytes of either direction go through both sections: sent by one, acknowledged by the other.
        for section in [&self.down, &self.up] {
            section.tuner.borrow().iter().for_each(|tuner| tuner.on_bytes_moved(bytes));
        }
        let total = match (direction, transfer) {
            (Direction::Down, TransferMethod::Copied) => &self.totals.down_copied,
            (Direction::Down, TransferMethod::Spliced) => &self.totals.down_spliced,
            (Direction::Up, TransferMethod::Copied) => &self.totals.up_copied,
            (Direction::Up, TransferMethod::Spliced) => &self.totals.up_spliced,
        };
        total.inc_by(bytes);
    }

    fn on_stall_end(&self, direction: Direction, span: Duration) {
        self.totals.stalled_seconds(direction).inc_by(span.as_secs_f64());
    }

    fn on_queue_change(&self, direction: Direction, change: i64) {
        self.totals.queued_bytes(direction).inc_by(change);
    }

    fn on_record_size(&self, direction: Direction, bytes: usize) {
        self.section(direction).tuner.borrow().iter().for_each(|tuner| tuner.set_max_record(bytes));
    }

    fn reserve(&self, direction: Direction) -> Allowance {
        self.accounts.reserve(direction)
    }

    fn is_tuned(&self, direction: Direction) -> bool {
        self.section(direction).tuner.borrow().as_ref().is_some_and(|tuner| tuner.tunes_timers())
    }
}
