//! A section on a shared interface.

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

use ekiden_proto::share::{Allocation, Claim};
use tokio::net::TcpStream;

use super::pacing::{AchievedRate, PacingState};
use super::{SharedInterface, ThreadShaper};

/// Bytes that an idle section moves before it counts as active: occasional short messages are not worth sampling and
/// delay no other section.
const ACTIVE_BYTES: u64 = 16 * 1024;

/// A section on a shared interface. The session's telemetry reports its bytes; the shaper holds it while it is active.
#[derive(Debug)]
pub struct PacedSocket {
    /// Gone when the section is.
    stream: Weak<TcpStream>,
    interface: Arc<SharedInterface>,
    shaper: Weak<ThreadShaper>,
    weight: Cell<u32>,
    /// Bytes moved while idle; `None` while active.
    idle_bytes: Cell<Option<u64>>,
    active: RefCell<Option<Box<PacingState>>>,
}

impl PacedSocket {
    /// An idle section.
    pub fn new(
        stream: &Rc<TcpStream>,
        interface: &Arc<SharedInterface>,
        shaper: &Rc<ThreadShaper>,
        weight: u32,
    ) -> Rc<Self> {
        Rc::new(Self {
            stream: Rc::downgrade(stream),
            interface: Arc::clone(interface),
            shaper: Rc::downgrade(shaper),
            weight: Cell::new(weight),
            idle_bytes: Cell::new(Some(0)),
            active: RefCell::default(),
        })
    }

    /// Sets the weight.
    pub fn set_weight(&self, weight: u32) {
        self.weight.set(weight);
    }

    /// Whether the section is on `interface`.
    pub fn is_on(&self, interface: &Arc<SharedInterface>) -> bool {
        Arc::ptr_eq(&self.interface, interface)
    }

    /// Records bytes written to the section.
    pub fn record_bytes(self: &Rc<Self>, bytes: u64) {
        let Some(before) = self.idle_bytes.get() else { return };
        if before + bytes < ACTIVE_BYTES {
            return self.idle_bytes.set(Some(before + bytes));
        }
        self.idle_bytes.set(Some(0));
        self.activate(Instant::now());
    }

    /// Gives the section its share at once, and samples it from now on. If the kernel refuses, the section stays idle.
    fn activate(self: &Rc<Self>, now: Instant) {
        let (Some(stream), Some(shaper)) = (self.stream.upgrade(), self.shaper.upgrade()) else { return };
        if !shaper.is_shaping(self) {
            return;
        }
        let Ok(active) = PacingState::new(stream.as_fd(), now) else { return };
        *self.active.borrow_mut() = Some(Box::new(active));
        let ceiling = self.interface.initial_ceiling(self.weight.get());
        if self.with_active(|active, stream| active.apply_ceiling(stream.as_fd(), ceiling).is_ok()) {
            self.idle_bytes.set(None);
            shaper.activate(Rc::clone(self));
        } else {
            self.deactivate();
        }
    }

    /// The section's claim on the rate.
    pub fn claim(&self) -> Claim {
        let wants = self.active.borrow().as_ref().map_or(0, |active| active.demand());
        Claim { weight: self.weight.get(), demand: wants }
    }

    /// Samples the bytes sent. Returns false if the section has closed or become idle.
    pub fn sample(&self, now: Instant) -> bool {
        self.with_active(|active, stream| active.sample(stream.as_fd(), now).unwrap_or(false))
    }

    /// Applies the section's part of `division`. Returns false if the section has closed.
    pub fn apply_share(&self, division: &Allocation) -> bool {
        let ceiling = division.ceiling(self.claim());
        self.with_active(|active, stream| active.apply_ceiling(stream.as_fd(), ceiling).is_ok())
    }

    /// The rate per unit of weight since the last call, and the weight.
    pub fn take_rate(&self, now: Instant) -> Option<(AchievedRate, f64)> {
        let got = self.active.borrow_mut().as_mut().map(|active| active.take_rate(now));
        got.map(|got| (got, f64::from(self.weight.get())))
    }

    /// Makes the section idle, also after its interface is no longer shared, and restores its ceiling.
    pub fn deactivate(&self) {
        if let Some(active) = self.active.take()
            && let Some(stream) = self.stream.upgrade()
        {
            active.restore_ceiling(stream.as_fd());
        }
        self.idle_bytes.set(Some(0));
    }

    fn with_active(&self, act: impl FnOnce(&mut PacingState, &TcpStream) -> bool) -> bool {
        let mut active = self.active.borrow_mut();
        let (Some(active), Some(stream)) = (active.as_mut(), self.stream.upgrade()) else { return false };
        act(active, &stream)
    }
}
