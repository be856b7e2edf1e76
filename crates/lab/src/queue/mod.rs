//! Where packets wait for the line, in virtual time: which to let in, which to mark, which to take next.

use crate::Nanos;
use crate::conditions::QueueKind;
use crate::dice::Dice;
use crate::ledger::Ledger;
use crate::packet::Packet;

pub mod codel;
pub mod fq_codel;
pub mod red;
pub mod tail_drop;

/// How much waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// Packets.
    pub packets: u64,
    /// Bytes, as the link counts them.
    pub bytes: u64,
}

/// A queue in front of a line. The packet on the line is no longer in it. Times never go back.
pub trait Queue: Send {
    /// Takes in the packet, at `packet.at`, or writes its drop (or somebody else's) into the ledger.
    fn enqueue(&mut self, packet: Packet, ledger: &mut Ledger);

    /// The packet that goes onto the line at `now`; drops made on the way are in the ledger. None when all are gone.
    /// The packet's `at` is left as it was (the arrival): the line stamps it.
    fn dequeue(&mut self, now: Nanos, ledger: &mut Ledger) -> Option<Packet>;

    /// What waits.
    fn held(&self) -> Held;
}

/// The queue a lab file asks for. `dice` are for the queue's own random decisions.
#[must_use]
pub fn build(kind: &QueueKind, dice: Dice) -> Box<dyn Queue> {
    match kind {
        QueueKind::TailDrop { limit } => Box::new(tail_drop::TailDrop::new(*limit)),
        QueueKind::Red(settings) => Box::new(red::Red::new(*settings, dice)),
        QueueKind::Codel(settings) => Box::new(codel::Codel::new(*settings)),
        QueueKind::FqCodel(settings) => Box::new(fq_codel::FqCodel::new(*settings)),
    }
}
