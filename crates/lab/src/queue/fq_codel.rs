//! To be written.
use crate::{Nanos, ledger::Ledger, packet::Packet, queue::{Held, Queue}};
/// To be written.
pub struct FqCodel;
impl FqCodel {
    /// To be written.
    #[must_use]
    pub fn new(_settings: crate::conditions::FqCodelSettings) -> Self { Self }
}
impl Queue for FqCodel {
    fn enqueue(&mut self, _packet: Packet, _ledger: &mut Ledger) {}
    fn dequeue(&mut self, _now: Nanos, _ledger: &mut Ledger) -> Option<Packet> { None }
    fn held(&self) -> Held { Held::default() }
}
