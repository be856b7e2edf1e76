//! Telemetry and options of a connection under a congestion control of ekiden: one [`SectionTelemetry`] in its socket's
//! storage, by its descriptor (bpf(2), `BPF_MAP_TYPE_SK_STORAGE`). The layout is `struct section` of cc.h.

use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::pins::{self, PinKind};

/// The map's name in every object.
pub(super) const SECTIONS: &str = "sections";

/// How many numbers of 32 bits a [`SectionTelemetry`] has.
const SECTION_WORDS: usize = 12;

/// One connection. Zero is "as the algorithm likes" and "not known".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SectionTelemetry {
    /// Asked for: packets in the queue that count as congestion (ctcp).
    pub gamma: u32,
    /// Asked for: gamma follows the connection's own share of the queue (ctcp).
    pub auto_gamma: bool,
    /// Congestion window, in packets.
    pub window: u32,
    /// The part of it that losses govern, packets (ctcp).
    pub loss_window: u32,
    /// The part of it that delay governs, packets (ctcp).
    pub delay_window: u32,
    /// Smallest round-trip time, microseconds.
    pub base_rtt_us: u32,
    /// Round-trip time of the newest round, microseconds.
    pub rtt_us: u32,
    /// Its packets in the path's queues, as estimated.
    pub queued: u32,
    /// Gamma in force, packets (ctcp).
    pub gamma_now: u32,
    /// Round trips so far.
    pub rounds: u32,
    /// Reductions for loss or a mark.
    pub losses: u32,
    /// Retransmission timeouts so far.
    pub timeouts: u32,
}

impl SectionTelemetry {
    fn from_words(words: [u32; SECTION_WORDS]) -> Self {
        let [
            gamma,
            auto_gamma,
            window,
            loss_window,
            delay_window,
            base_rtt_us,
            rtt_us,
            queued,
            gamma_now,
            rounds,
            losses,
            timeouts,
        ] = words;
        let auto_gamma = auto_gamma != 0;
        Self {
            gamma,
            auto_gamma,
            window,
            loss_window,
            delay_window,
            base_rtt_us,
            rtt_us,
            queued,
            gamma_now,
            rounds,
            losses,
            timeouts,
        }
    }
}

/// The storage of all connections under one congestion control.
#[derive(Debug)]
pub struct TelemetryMap {
    map: MapHandle,
}

impl TelemetryMap {
    pub(super) fn new(map: MapHandle) -> Self {
        Self { map }
    }

    /// That of the pinned congestion control; none where nothing is pinned, or this process may not read it.
    #[must_use]
    pub fn pinned(name: &str) -> Option<Self> {
        pins::sections(name).map(Self::new)
    }

    /// The message for users with read access, and no write access, to the pinned storage.
    #[must_use]
    pub fn write_permission_hint(name: &str) -> String {
        PinKind::Sections.write_permission_hint(name)
    }

    /// The telemetry of a connection; `None` under another congestion control.
    #[must_use]
    pub fn read(&self, socket: BorrowedFd<'_>) -> Option<SectionTelemetry> {
        let bytes = self.map.lookup(&key(socket), MapFlags::ANY).ok()??;
        let mut words = [0; SECTION_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_ne_bytes(bytes.try_into().ok()?);
        }
        Some(SectionTelemetry::from_words(words))
    }

    /// Asks a connection, or those that a listener will accept, for a gamma (packets; 0 is the algorithm's own) and for
    /// one that follows.
    ///
    /// # Errors
    /// The kernel's: `EPERM` when the storage was opened for reading only.
    pub fn request_gamma(&self, socket: BorrowedFd<'_>, gamma: u32, auto_gamma: bool) -> libbpf_rs::Result<()> {
        let mut value =
            self.map.lookup(&key(socket), MapFlags::ANY)?.unwrap_or(vec![0; self.map.value_size() as usize]);
        value[..4].copy_from_slice(&gamma.to_ne_bytes());
        value[4..8].copy_from_slice(&u32::from(auto_gamma).to_ne_bytes());
        self.map.update(&key(socket), &value, MapFlags::ANY)
    }
}

fn key(socket: BorrowedFd<'_>) -> [u8; 4] {
    socket.as_raw_fd().to_ne_bytes()
}
