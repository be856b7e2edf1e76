//! The bytes of every packet that is under way. A superpacket is one buffer, however many packets it is, until the last of
//! them has left.

use crate::emulator::frame::Frame;

/// Room for the largest superpacket with its `virtio_net_hdr` and link header.
pub const LARGE: usize = 65_536 + 64;
/// Frames up to this size are copied into a buffer of this size, so that an acknowledgement does not hold 64 KiB.
pub const SMALL: usize = 2048;

/// A frame that is held.
pub struct Slot {
    buffer: Box<[u8]>,
    length: usize,
    /// What its headers say.
    pub frame: Frame,
    packets_left: u32,
}

impl Slot {
    /// The frame, with its `virtio_net_hdr`.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

/// All frames that are held, and buffers to hold more, up to a limit.
pub struct Store {
    slots: Vec<Slot>,
    free: Vec<u32>,
    large: Vec<Box<[u8]>>,
    small: Vec<Box<[u8]>>,
    held: usize,
    limit: usize,
}

impl Store {
    /// An empty store that holds at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), large: Vec::new(), small: Vec::new(), held: 0, limit }
    }

    /// A buffer to receive into.
    pub fn buffer(&mut self) -> Box<[u8]> {
        self.large.pop().unwrap_or_else(|| vec![0; LARGE].into_boxed_slice())
    }

    /// Keeps the first `length` bytes of `received`, which is left as another buffer to receive into. `None` if the store
    /// is full.
    pub fn keep(&mut self, received: &mut Box<[u8]>, length: usize, frame: Frame) -> Option<u32> {
        let size = if length <= SMALL { SMALL } else { LARGE };
        if self.held + size > self.limit {
            return None;
        }
        self.held += size;
        let buffer = if length <= SMALL {
            let mut small = self.small.pop().unwrap_or_else(|| vec![0; SMALL].into_boxed_slice());
            small[..length].copy_from_slice(&received[..length]);
            small
        } else {
            let other = self.buffer();
            std::mem::replace(received, other)
        };
        let slot = Slot { buffer, length, frame, packets_left: 0 };
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = slot;
            return Some(index);
        }
        self.slots.push(slot);
        u32::try_from(self.slots.len() - 1).ok()
    }

    /// The frame in a slot.
    #[must_use]
    pub fn get(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }

    /// `count` more packets of this frame are under way.
    pub fn hold(&mut self, index: u32, count: u32) {
        self.slots[index as usize].packets_left += count;
    }

    /// `count` packets of this frame are gone; with the last of them, so is the frame.
    pub fn release(&mut self, index: u32, count: u32) {
        let slot = &mut self.slots[index as usize];
        slot.packets_left -= count;
        if slot.packets_left > 0 {
            return;
        }
        let buffer = std::mem::take(&mut slot.buffer);
        self.held -= buffer.len();
        if buffer.len() == SMALL {
            self.small.push(buffer);
        } else {
            self.large.push(buffer);
        }
        self.free.push(index);
    }
}

/// Which packet of which frame: what the emulator keeps in [`Packet::tag`](crate::packet::Packet::tag).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// The slot of the frame.
    pub slot: u32,
    /// The first segment.
    pub first: u16,
    /// How many segments: more than one only where nothing tells them apart.
    pub count: u16,
}

impl From<Tag> for u64 {
    fn from(tag: Tag) -> Self {
        Self::from(tag.slot) << 32 | Self::from(tag.first) << 16 | Self::from(tag.count)
    }
}

impl From<u64> for Tag {
    fn from(bits: u64) -> Self {
        Self { slot: (bits >> 32) as u32, first: (bits >> 16) as u16, count: bits as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_held_until_its_last_packet_has_left_and_its_room_is_used_again() {
        let mut store = Store::new(LARGE + SMALL);
        let mut buffer = store.buffer();
        buffer[..4].copy_from_slice(b"long");
        let frame = Frame::read(&buffer, 14);
        let long = store.keep(&mut buffer, 3000, frame).unwrap();
        store.hold(long, 3);
        assert_eq!(&store.get(long).bytes()[..4], b"long");
        assert_eq!(store.get(long).bytes().len(), 3000);
        buffer[..5].copy_from_slice(b"short");
        let short = store.keep(&mut buffer, 5, frame).unwrap();
        store.hold(short, 1);
        assert_eq!(store.get(short).bytes(), b"short");
        assert_eq!(store.keep(&mut buffer, 5, frame), None, "the store is full");
        store.release(long, 2);
        assert_eq!(store.keep(&mut buffer, 3000, frame), None, "one packet of it is still under way");
        store.release(long, 1);
        assert_eq!(store.keep(&mut buffer, 3000, frame), Some(long));
    }

    #[test]
    fn a_tag_survives_being_a_number() {
        let tag = Tag { slot: 70_000, first: 44, count: 1 };
        assert_eq!(Tag::from(u64::from(tag)), tag);
    }
}
