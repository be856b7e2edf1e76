//! Writes pcapng files (draft-ietf-opsawg-pcapng): one section with one interface, timestamps in nanoseconds.
//!
//! All fields are little-endian.

use std::io::{self, Write};

use ekiden_emulator::Nanos;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const VERSION: [u16; 2] = [1, 0];
/// Length of a section that the writer does not know in advance.
const UNKNOWN_LENGTH: i64 = -1;
/// The timestamp resolution 10⁻⁹ s.
const NANOSECONDS: u8 = 9;

const COMMENT: u16 = 1;
const SHB_USER_APPLICATION: u16 = 4;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TIMESTAMP_RESOLUTION: u16 = 9;
const EPB_FLAGS: u16 = 2;
const EPB_DROP_COUNT: u16 = 4;
const EPB_PACKET_ID: u16 = 5;
const ISB_RECEIVED: u16 = 4;
const ISB_DROPPED: u16 = 5;

/// Link type of an interface (the LINKTYPE registry of the draft).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// Ethernet frames without a checksum.
    Ethernet,
    /// IP packets without a link header.
    Raw,
}

impl LinkType {
    const fn value(self) -> u16 {
        match self {
            Self::Ethernet => 1,
            Self::Raw => 101,
        }
    }

    /// Returns the length of the link header, in bytes.
    #[must_use]
    pub const fn header_len(self) -> usize {
        match self {
            Self::Ethernet => 14,
            Self::Raw => 0,
        }
    }
}

/// Direction of a packet at the interface, as in `epb_flags`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketDirection {
    /// Received by the interface.
    Inbound = 1,
    /// Sent by the interface.
    Outbound = 2,
}

/// The interface of a file.
#[derive(Debug)]
pub struct Interface<'a> {
    /// Name of the interface, in `if_name`.
    pub name: &'a str,
    /// Description of the interface, in `if_description`.
    pub description: &'a str,
    /// Link type of all packets.
    pub link_type: LinkType,
    /// Maximum number of captured bytes of a packet.
    pub snaplen: u32,
}

/// A packet with the fields of its enhanced packet block.
#[derive(Debug)]
pub struct CapturedPacket<'a> {
    /// Number of the packet: equal numbers in two files are the same packet.
    pub id: u64,
    /// Time since the Unix epoch, in nanoseconds.
    pub at: Nanos,
    /// Direction at the interface.
    pub direction: PacketDirection,
    /// Size of the packet with its link header, in bytes.
    pub length: u32,
    /// The first bytes of the packet.
    pub bytes: &'a [u8],
    /// Number of packets before this one that are not in the file.
    pub missed_before: u64,
    /// Comments, one for each outcome of the packet.
    pub comments: &'a [String],
}

/// Writes the blocks of one file.
#[derive(Debug)]
pub struct PcapngWriter<W> {
    output: W,
    block: Vec<u8>,
}

impl<W: Write> PcapngWriter<W> {
    /// Writes the section header and the description of the interface.
    ///
    /// # Errors
    /// The errors of the output.
    pub fn new(output: W, interface: &Interface<'_>) -> io::Result<Self> {
        let mut writer = Self { output, block: Vec::new() };
        writer.put(&BYTE_ORDER_MAGIC.to_le_bytes());
        VERSION.iter().for_each(|part| writer.put(&part.to_le_bytes()));
        writer.put(&UNKNOWN_LENGTH.to_le_bytes());
        writer.put_option(SHB_USER_APPLICATION, concat!("ekiden-lab ", env!("CARGO_PKG_VERSION")).as_bytes());
        writer.write_block(SECTION_HEADER)?;
        writer.put(&interface.link_type.value().to_le_bytes());
        writer.put(&[0; 2]);
        writer.put(&interface.snaplen.to_le_bytes());
        writer.put_option(IF_NAME, interface.name.as_bytes());
        writer.put_option(IF_DESCRIPTION, interface.description.as_bytes());
        writer.put_option(IF_TIMESTAMP_RESOLUTION, &[NANOSECONDS]);
        writer.write_block(INTERFACE_DESCRIPTION)?;
        Ok(writer)
    }

    /// Writes an enhanced packet block.
    ///
    /// # Errors
    /// The errors of the output.
    pub fn write_packet(&mut self, packet: &CapturedPacket<'_>) -> io::Result<()> {
        self.put_interface_and_time(packet.at);
        self.put(&length_field(packet.bytes.len()).to_le_bytes());
        self.put(&packet.length.to_le_bytes());
        self.put(packet.bytes);
        self.pad();
        self.put_option(EPB_FLAGS, &(packet.direction as u32).to_le_bytes());
        if packet.missed_before > 0 {
            self.put_option(EPB_DROP_COUNT, &packet.missed_before.to_le_bytes());
        }
        self.put_option(EPB_PACKET_ID, &packet.id.to_le_bytes());
        packet.comments.iter().for_each(|comment| self.put_option(COMMENT, comment.as_bytes()));
        self.write_block(ENHANCED_PACKET)
    }

    /// Writes the numbers of received packets and of packets that are not in the file, and flushes the output.
    ///
    /// # Errors
    /// The errors of the output.
    pub fn finish(mut self, at: Nanos, received: u64, missed: u64) -> io::Result<()> {
        self.put_interface_and_time(at);
        self.put_option(ISB_RECEIVED, &received.to_le_bytes());
        self.put_option(ISB_DROPPED, &missed.to_le_bytes());
        self.write_block(INTERFACE_STATISTICS)?;
        self.output.flush()
    }

    /// Appends the number of the interface, and a timestamp: its upper half, then its lower half.
    fn put_interface_and_time(&mut self, at: Nanos) {
        self.put(&[0; 4]);
        for half in [at >> 32, at & 0xffff_ffff] {
            self.put(&u32::try_from(half).unwrap_or(0).to_le_bytes());
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn put_option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        self.put(&code.to_le_bytes());
        self.put(&u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
        self.put(value);
        self.pad();
    }

    /// Writes the block whose body is in `self.block`, with the end of its options, and empties the body.
    fn write_block(&mut self, kind: u32) -> io::Result<()> {
        self.put(&[0; 4]);
        let length = length_field(self.block.len() + 12).to_le_bytes();
        self.output.write_all(&kind.to_le_bytes())?;
        self.output.write_all(&length)?;
        self.output.write_all(&self.block)?;
        self.output.write_all(&length)?;
        self.block.clear();
        Ok(())
    }
}

fn length_field(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
