//! One direction of a link: stages in a fixed order, moved on by events in virtual time.
//!
//! Order: gate (down), access serialiser, ingress loss, queue and line, delay and jitter, reordering, wire loss, duplicates.

use crate::Nanos;
use crate::conditions::Conditions;
use crate::dice::Dice;
use crate::ledger::Ledger;
use crate::packet::Packet;
use crate::stage::Stage;

/// One direction of a link, in virtual time.
pub struct Pipeline {
    stages: Vec<Box<dyn Stage>>,
    /// What happened to packets other than passing; the caller empties it.
    pub ledger: Ledger,
}
