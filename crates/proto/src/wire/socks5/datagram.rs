//! The header in front of each UDP datagram between client and relay (RFC 1928, 7).

use std::net::SocketAddr;

use crate::addr::{Host, Target};
use crate::wire::address::{self, WireAddress};
use crate::wire::cursor::Cursor;
use crate::wire::{Parsed, WireError};

/// The header of a datagram from a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatagramHeader {
    /// The number of the fragment; 0 for a complete datagram.
    pub fragment: u8,
    /// The target of the datagram.
    pub target: Target,
}

impl DatagramHeader {
    /// Length of the longest header that [`Self::write`] appends, in bytes.
    pub const MAX_WRITTEN: usize = 3 + 1 + 16 + 2;

    /// Reads `0, 0, fragment, address`; the rest of the datagram is the payload. The reserved bytes may have any value,
    /// as in dante.
    ///
    /// # Errors
    /// [`WireError::Invalid`] for an unknown address type or an address that is no valid target;
    /// [`WireError::Incomplete`] for a datagram that ends within its header.
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        let mut cursor = Cursor::new(bytes);
        let [_, _, fragment] = cursor.array()?;
        let address = WireAddress::read(&mut cursor)?.ok_or(WireError::Invalid("address type not supported"))?;
        Ok((Self { fragment, target: address.to_target()? }, cursor.position()))
    }

    /// Appends the header of a datagram from `source` to the client.
    pub fn write(source: SocketAddr, out: &mut Vec<u8>) {
        out.extend([0; 3]);
        address::write(&Host::from(source.ip()), source.port(), out);
    }
}
