//! Storage for the bytes of packets under way. A superpacket occupies one buffer until its last packet is gone.

use crate::frame::Frame;

/// Size of a buffer for the largest superpacket with its `virtio_net_hdr` and link header, in bytes.
pub const LARGE_BUFFER: usize = 65_536 + 64;
/// Frames up to this size are copied into a buffer of this size, so that an acknowledgement does not occupy 64 KiB.
pub const SMALL_BUFFER: usize = 2048;

/// A stored frame with its use count.
pub struct FrameSlot {
    buffer: Box<[u8]>,
    length: usize,
    /// Parsed headers of the frame.
    pub frame: Frame,
    packets_left: u32,
}

impl FrameSlot {
    /// Returns the frame, including its `virtio_net_hdr`.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

/// Stored frames, and buffers for more frames up to a limit.
pub struct FrameStore {
    slots: Vec<FrameSlot>,
    free: Vec<u32>,
    large_buffers: Vec<Box<[u8]>>,
    small_buffers: Vec<Box<[u8]>>,
    held_bytes: usize,
    limit: usize,
}

impl FrameStore {
    /// Creates an empty store for at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            large_buffers: Vec::new(),
            small_buffers: Vec::new(),
            held_bytes: 0,
            limit,
        }
    }

    /// Returns a buffer to receive into.
    pub fn take_buffer(&mut self) -> Box<[u8]> {
        self.large_buffers.pop().unwrap_or_else(|| vec![0; LARGE_BUFFER].into_boxed_slice())
    }

    /// Stores the first `length` bytes of `received`, and leaves another buffer to receive into in its place. Returns
    /// `None` if the store is full.
    pub fn insert(&mut self, received: &mut Box<[u8]>, length: usize, frame: Frame) -> Option<u32> {
        let size = if length <= SMALL_BUFFER { SMALL_BUFFER } else { LARGE_BUFFER };
        if self.held_bytes + size > self.limit {
            return None;
        }
        self.held_bytes += size;
        let buffer = if length <= SMALL_BUFFER {
            let mut small = self.small_buffers.pop().unwrap_or_else(|| vec![0; SMALL_BUFFER].into_boxed_slice());
            small[..length].copy_from_slice(&received[..length]);
            small
        } else {
            let other = self.take_buffer();
            std::mem::replace(received, other)
        };
        let slot = FrameSlot { buffer, length, frame, packets_left: 0 };
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = slot;
            return Some(index);
        }
        self.slots.push(slot);
        u32::try_from(self.slots.len() - 1).ok()
    }

    /// Returns the frame in a slot.
    #[must_use]
    pub fn get(&self, index: u32) -> &FrameSlot {
        &self.slots[index as usize]
    }

    /// Adds `count` packets to the use count of a frame.
    pub fn retain(&mut self, index: u32, count: u32) {
        self.slots[index as usize].packets_left += count;
    }

    /// Removes `count` packets from the use count of a frame, and frees the frame at 0.
    pub fn release(&mut self, index: u32, count: u32) {
        let slot = &mut self.slots[index as usize];
        slot.packets_left -= count;
        if slot.packets_left > 0 {
            return;
        }
        let buffer = std::mem::take(&mut slot.buffer);
        self.held_bytes -= buffer.len();
        if buffer.len() == SMALL_BUFFER {
            self.small_buffers.push(buffer);
        } else {
            self.large_buffers.push(buffer);
        }
        self.free.push(index);
    }
}

/// Reference to packets of a stored frame, encoded in [`Packet::tag`](crate::packet::Packet::tag).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketTag {
    /// Slot of the frame.
    pub slot: u32,
    /// Index of the first segment.
    pub first: u16,
    /// Number of segments: more than one only if no stage distinguishes packets.
    pub count: u16,
}

impl From<PacketTag> for u64 {
    fn from(tag: PacketTag) -> Self {
        Self::from(tag.slot) << 32 | Self::from(tag.first) << 16 | Self::from(tag.count)
    }
}

impl From<u64> for PacketTag {
    fn from(bits: u64) -> Self {
        Self { slot: (bits >> 32) as u32, first: (bits >> 16) as u16, count: bits as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_slot_is_reused_only_after_its_last_packet_leaves() {
        let mut store = FrameStore::new(LARGE_BUFFER + SMALL_BUFFER);
        let mut buffer = store.take_buffer();
        buffer[..4].copy_from_slice(b"long");
        let frame = Frame::parse(&buffer, 14);
        let long = store.insert(&mut buffer, 3000, frame).unwrap();
        store.retain(long, 3);
        assert_eq!(&store.get(long).bytes()[..4], b"long");
        assert_eq!(store.get(long).bytes().len(), 3000);
        buffer[..5].copy_from_slice(b"short");
        let short = store.insert(&mut buffer, 5, frame).unwrap();
        store.retain(short, 1);
        assert_eq!(store.get(short).bytes(), b"short");
        assert_eq!(store.insert(&mut buffer, 5, frame), None, "the store is full");
        store.release(long, 2);
        assert_eq!(store.insert(&mut buffer, 3000, frame), None, "a packet of the frame is still in flight");
        store.release(long, 1);
        assert_eq!(store.insert(&mut buffer, 3000, frame), Some(long));
    }

    #[test]
    fn packet_tag_round_trips_through_u64() {
        let tag = PacketTag { slot: 70_000, first: 44, count: 1 };
        assert_eq!(PacketTag::from(u64::from(tag)), tag);
    }
}
