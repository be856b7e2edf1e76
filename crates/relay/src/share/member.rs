//! A section among those that leave by one interface.

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

use ekiden_proto::share::{Claim, Division};
use tokio::net::TcpStream;

use super::active::{Active, Got};
use super::{Desk, Interface};

/// Bytes that an idle section moves before it counts as one that sends: short messages now and then are not worth a look,
/// and hold nobody up.
const ENOUGH: u64 = 16 * 1024;

/// One of them. It belongs to a session, whose meter tells it what moves; its desk knows it while it sends.
#[derive(Debug)]
pub struct Member {
    /// Gone when the section is.
    stream: Weak<TcpStream>,
    interface: Arc<Interface>,
    desk: Weak<Desk>,
    weight: Cell<u32>,
    /// What it has moved while it is idle; `None` while it is not.
    idle: Cell<Option<u64>>,
    active: RefCell<Option<Box<Active>>>,
}

impl Member {
    /// One that is idle.
    pub fn new(stream: &Rc<TcpStream>, interface: &Arc<Interface>, desk: &Rc<Desk>, weight: u32) -> Rc<Self> {
        Rc::new(Self {
            stream: Rc::downgrade(stream),
            interface: Arc::clone(interface),
            desk: Rc::downgrade(desk),
            weight: Cell::new(weight),
            idle: Cell::new(Some(0)),
            active: RefCell::default(),
        })
    }

    /// Says how many shares it has.
    pub fn weigh(&self, weight: u32) {
        self.weight.set(weight);
    }

    /// Whether it is a member of this interface.
    pub fn is_at(&self, interface: &Arc<Interface>) -> bool {
        Arc::ptr_eq(&self.interface, interface)
    }

    /// Bytes have moved into it.
    pub fn moved(self: &Rc<Self>, bytes: u64) {
        let Some(before) = self.idle.get() else { return };
        if before + bytes < ENOUGH {
            return self.idle.set(Some(before + bytes));
        }
        self.idle.set(Some(0));
        self.begin(Instant::now());
    }

    /// Gets its share at once, and is looked at from now on. Where the kernel refuses, it stays as it is.
    fn begin(self: &Rc<Self>, now: Instant) {
        let (Some(stream), Some(desk)) = (self.stream.upgrade(), self.desk.upgrade()) else { return };
        if !desk.serves(self) {
            return;
        }
        let Ok(active) = Active::new(stream.as_fd(), now) else { return };
        *self.active.borrow_mut() = Some(Box::new(active));
        let ceiling = self.interface.welcome(self.weight.get());
        if self.with(|active, stream| active.bound(stream.as_fd(), ceiling).is_ok()) {
            self.idle.set(None);
            desk.take(Rc::clone(self));
        } else {
            self.leave();
        }
    }

    /// What it asks for.
    pub fn claim(&self) -> Claim {
        let wants = self.active.borrow().as_ref().map_or(0, |active| active.wants());
        Claim { weight: self.weight.get(), wants }
    }

    /// Looks what it has sent; false when it is gone or has become idle.
    pub fn look(&self, now: Instant) -> bool {
        self.with(|active, stream| active.look(stream.as_fd(), now).unwrap_or(false))
    }

    /// Gives it what `division` says; false when it is gone.
    pub fn bound(&self, division: &Division) -> bool {
        let ceiling = division.ceiling(self.claim());
        self.with(|active, stream| active.bound(stream.as_fd(), ceiling).is_ok())
    }

    /// What it got since this was asked last, for each of its shares; and how many those are.
    pub fn got(&self, now: Instant) -> Option<(Got, f64)> {
        let got = self.active.borrow_mut().as_mut().map(|active| active.got(now));
        got.map(|got| (got, f64::from(self.weight.get())))
    }

    /// It is idle, or not this interface's any more: it gets back the ceiling that it had before.
    pub fn leave(&self) {
        if let Some(active) = self.active.take()
            && let Some(stream) = self.stream.upgrade()
        {
            active.release(stream.as_fd());
        }
        self.idle.set(Some(0));
    }

    fn with(&self, act: impl FnOnce(&mut Active, &TcpStream) -> bool) -> bool {
        let mut active = self.active.borrow_mut();
        let (Some(active), Some(stream)) = (active.as_mut(), self.stream.upgrade()) else { return false };
        act(active, &stream)
    }
}
