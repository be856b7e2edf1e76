//! A section to a relay without a running session: its keys, and the usage by its earlier sessions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_proto::addr::ServerAddr;
use ekiden_proto::wire::section::TransportKeys;
use ekiden_proto::wire::section::open::OpenAnswer;
use tokio::net::TcpStream;

use crate::config::Hop;
use crate::pool::{IdleConnection, Pools};
use crate::pump::{FramedSection, RecordCipher};

/// Maximum number of sessions and of bytes of one section. The limit for bytes keeps an AES-GCM key below the limits of
/// RFC 8446, section 5.5.
const MAX_SESSIONS: u32 = 1000;
const MAX_BYTES: u64 = 64 << 30;

/// Maximum age of a section that carries another session: after a routing change, a new connection may take another
/// network path.
const MAX_AGE: Duration = Duration::from_secs(60 * 60);

/// Initial congestion window in bytes: 10 segments of 1,448 bytes (RFC 6928).
const INITIAL_WINDOW: u64 = 10 * 1448;

/// The first version of the section protocol with reusable sections.
pub const REUSABLE_SINCE: u8 = 2;

/// The first version of the section protocol with UDP associations.
pub const ASSOCIATIONS_SINCE: u8 = 3;

/// A section without a session.
#[derive(Debug)]
pub struct SectionLink {
    /// The cipher, which encrypts the next OPEN.
    pub cipher: RecordCipher,
    /// The version of the section protocol.
    pub version: u8,
    /// The usage by earlier sessions.
    pub usage: SectionUsage,
}

/// The usage of a section by the sessions that it has carried.
#[derive(Debug, Clone, Copy)]
pub struct SectionUsage {
    since: Instant,
    sessions: u32,
    bytes: u64,
    /// Number of bytes of the largest session.
    largest: u64,
    /// Whether the bytes of the sessions are in records; `None` before the first session.
    encrypt: Option<bool>,
}

/// A running session on a section that can carry another session afterwards.
#[derive(Debug, Clone)]
pub struct SectionReuse {
    /// The relay at the other end.
    pub hop: Arc<Hop>,
    /// The address of the relay.
    pub server: ServerAddr,
    /// The version of the section protocol.
    pub version: u8,
    /// The usage by the sessions before this session.
    pub usage: SectionUsage,
    /// The pools to which the section is returned after the session.
    pub pools: Arc<Pools>,
}

impl SectionLink {
    /// Creates an unused section from the keys of its handshake.
    #[must_use]
    pub fn new(keys: TransportKeys) -> Self {
        let version = keys.version;
        Self {
            cipher: RecordCipher::new(keys, OpenAnswer::MAX_LENGTH),
            version,
            usage: SectionUsage { since: Instant::now(), sessions: 0, bytes: 0, largest: 0, encrypt: None },
        }
    }

    /// Returns whether the relay supports another session on this section after the next session.
    #[must_use]
    pub const fn is_reusable(&self) -> bool {
        self.version >= REUSABLE_SINCE
    }
}

impl SectionReuse {
    /// Returns the section to its pool, after a session of `bytes` bytes that both sides have ended. A section that has
    /// reached its limits is closed, as is a section on which the relay has sent unexpected bytes.
    pub fn put_back(self, stream: TcpStream, section: FramedSection, bytes: u64) {
        let usage = self.usage.after_session(bytes, section.encrypt).filter(|_| !section.cipher.has_buffered());
        if let (Some(usage), Ok(stream)) = (usage, stream.into_std()) {
            section.cipher.expect_record(OpenAnswer::MAX_LENGTH);
            let link = SectionLink { cipher: section.cipher, version: self.version, usage };
            self.pools.put_back(&self.hop, IdleConnection { stream, server: self.server, link });
        }
    }
}

/// Returns the number of earlier sessions of a reusable section; 0 for other sections.
#[must_use]
pub fn earlier_sessions(reuse: Option<&SectionReuse>) -> u32 {
    reuse.map_or(0, |reuse| reuse.usage.sessions())
}

impl SectionUsage {
    /// Returns whether the next session may have this encryption: all sessions of a section use the same setting.
    #[must_use]
    pub fn can_carry(&self, encrypt: bool) -> bool {
        self.encrypt.is_none_or(|before| before == encrypt)
    }

    /// Returns the number of sessions that the section has carried.
    #[must_use]
    pub const fn sessions(&self) -> u32 {
        self.sessions
    }

    /// Returns whether a session was larger than the initial congestion window, so that the window may have grown.
    #[must_use]
    pub const fn has_grown(&self) -> bool {
        self.largest > INITIAL_WINDOW
    }

    /// Returns the usage after one more session; `None` if the section has reached a limit.
    #[must_use]
    pub fn after_session(self, bytes: u64, encrypt: bool) -> Option<Self> {
        let usage = Self {
            sessions: self.sessions + 1,
            bytes: self.bytes.saturating_add(bytes),
            largest: self.largest.max(bytes),
            encrypt: Some(encrypt),
            ..self
        };
        let can_go_on = usage.sessions < MAX_SESSIONS && usage.bytes < MAX_BYTES && usage.since.elapsed() < MAX_AGE;
        can_go_on.then_some(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_reuse_is_limited_by_sessions_bytes_and_age() {
        let fresh = SectionUsage { since: Instant::now(), sessions: 0, bytes: 0, largest: 0, encrypt: None };
        assert!(fresh.can_carry(true) && fresh.can_carry(false));
        let used = fresh.after_session(1, true).unwrap();
        assert!(used.can_carry(true) && !used.can_carry(false));
        assert_eq!(used.sessions(), 1);
        assert!(!used.after_session(INITIAL_WINDOW, true).unwrap().has_grown());
        let grown = used.after_session(INITIAL_WINDOW + 1, true).unwrap();
        assert!(grown.has_grown() && grown.after_session(1, true).unwrap().has_grown());
        assert!(SectionUsage { sessions: MAX_SESSIONS - 1, ..used }.after_session(1, true).is_none());
        assert!(SectionUsage { bytes: MAX_BYTES - 1, ..used }.after_session(1, true).is_none());
        assert!(SectionUsage { bytes: MAX_BYTES - 2, ..used }.after_session(1, true).is_some());
        let old = Instant::now().checked_sub(MAX_AGE).unwrap();
        assert!(SectionUsage { since: old, ..used }.after_session(1, true).is_none());
    }
}
