//! What carries the packets of a tunnel that are not TCP.

use std::rc::Rc;
use std::sync::Arc;

use super::Device;
use crate::entrance::Entrance;

/// The lanes of one device, on the thread that reads it.
pub struct Lanes {
    entrance: Rc<Entrance>,
}

impl Lanes {
    /// None so far.
    pub fn new(entrance: Rc<Entrance>, _device: Arc<Device>) -> Rc<Self> {
        Rc::new(Self { entrance })
    }

    /// Takes a packet that the host sent into the device. Never waits.
    pub fn carry(&self, _packet: &[u8]) {
        self.entrance.shared().metrics.dropped(&self.entrance.listener.name, "no_lane");
    }
}
