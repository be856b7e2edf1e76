//! Careful Resume (RFC 9959): a connection starts to send with a window that this process remembers of its path, instead of
//! the initial one. `resume.h` has the phases, and a table of differences from the RFC; `cubicresume` is the congestion
//! control that knows requests.
//!
//! The caller remembers how much a path has carried, and requests a jump before the first data of a session:
//!
//! - on a new connection whose handshake has measured the round-trip time;
//! - on a connection that was idle, whose window the kernel has reduced meanwhile. The request is the same, and so are the
//!   checks, the pace and the retreat.
//!
//! A request is for one jump. After [`ResumePhase::Retreated`] the caller has to delete the saved values.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use ekiden_sys::clock;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::pins::{self, PinKind};

/// The map's name in every object.
pub(super) const RESUMES: &str = "resumes";

/// A jump for the next transmission that begins with nothing in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumeRequest {
    /// The congestion window to start with, bytes of payload. The RFC permits at most half of the saved window, and to one
    /// connection of a path: the caller halves, and divides among connections.
    pub jump_bytes: u32,
    /// The round-trip time that belongs to the saved window. The request is rejected where the connection's is less than
    /// half or more than twice of it. At most 71 minutes.
    pub saved_rtt: Duration,
    /// The time from now after which the request is void.
    pub lifetime: Duration,
}

/// How far a connection is with its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumePhase {
    /// No transmission has exceeded the ordinary window since the request.
    Waiting,
    /// There will be no jump.
    Rejected(ResumeRejection),
    /// The jump is being sent, and nothing of it is acknowledged.
    Unvalidated,
    /// The jump was sent, and a part of it is acknowledged.
    Validating,
    /// All of the jump has arrived without a sign of congestion.
    Validated,
    /// Safe Retreat: a packet of the jump was lost or marked.
    Retreating,
    /// Safe Retreat is over: the path does not carry the jump.
    Retreated,
}

/// Why there is no jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeRejection {
    /// The lifetime was over when data came.
    Expired,
    /// The round-trip time of the connection is not known yet.
    UnknownRtt,
    /// The round-trip time is less than half of the saved one: another path.
    ShorterRtt,
    /// The round-trip time is more than twice the saved one: another path, or a queue.
    LongerRtt,
    /// A packet was lost or marked before the jump.
    Congestion,
}

/// The state of a request, as the kernel has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumeState {
    /// The phase that was reached.
    pub phase: ResumePhase,
    /// Bytes that were sent on the credit of the request and of the window before it: the jump made. 0 until the first
    /// acknowledgement of the jump.
    pub sent_bytes: u32,
    /// The RFC's `PipeSize`: bytes of the jump that have arrived, in whole packets.
    pub pipe_bytes: u32,
    /// The congestion window before the jump, packets; 0 before it.
    pub window_before: u32,
    /// The congestion window of the jump, packets; 0 before it.
    pub window_jumped: u32,
}

/// A request was not stored.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// A jump of this connection is not over: its phases protect the path, and a new request would end them.
    #[error("the previous jump has not ended: {0:?}")]
    Unfinished(ResumePhase),
    /// The saved round-trip time is zero or too long.
    #[error("round-trip time out of range: {0:?}")]
    InvalidRtt(Duration),
    /// `EPERM` when the storage was opened for reading only.
    #[error(transparent)]
    Kernel(#[from] libbpf_rs::Error),
}

/// `struct resume` of resume.h.
struct ResumeWords {
    deadline_us: u64,
    words: [u32; Self::WORDS],
}

impl ResumeWords {
    const WORDS: usize = 14;
    const BYTES: usize = 8 + 4 * Self::WORDS;

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (deadline, rest) = bytes.split_first_chunk()?;
        let mut words = [0; Self::WORDS];
        for (word, bytes) in words.iter_mut().zip(rest.as_chunks::<4>().0) {
            *word = u32::from_ne_bytes(*bytes);
        }
        (bytes.len() == Self::BYTES).then_some(Self { deadline_us: u64::from_ne_bytes(*deadline), words })
    }

    fn into_bytes(self) -> Vec<u8> {
        let words = self.words.into_iter().flat_map(u32::to_ne_bytes);
        self.deadline_us.to_ne_bytes().into_iter().chain(words).collect()
    }

    fn from_request(request: &ResumeRequest, now: Duration) -> Result<Self, ResumeError> {
        let saved_rtt_us = u32::try_from(request.saved_rtt.as_micros()).unwrap_or(0);
        if saved_rtt_us == 0 {
            return Err(ResumeError::InvalidRtt(request.saved_rtt));
        }
        let deadline_us = u64::try_from(now.saturating_add(request.lifetime).as_micros()).unwrap_or(u64::MAX);
        let mut words = [0; Self::WORDS];
        // RESUME_WAITING.
        words[..3].copy_from_slice(&[request.jump_bytes, saved_rtt_us, 1]);
        Ok(Self { deadline_us, words })
    }

    fn state(&self) -> Option<ResumeState> {
        let [_, _, phase, reason, mss, window_before, window_jumped, _, pipe, first, last, ..] = self.words;
        Some(ResumeState {
            phase: phase_from(phase, reason)?,
            // Positions in the stream go round.
            sent_bytes: last.wrapping_sub(first),
            pipe_bytes: pipe.saturating_mul(mss),
            window_before,
            window_jumped,
        })
    }
}

/// `enum resume_phase` and `enum resume_reason`.
fn phase_from(phase: u32, reason: u32) -> Option<ResumePhase> {
    Some(match phase {
        1 => ResumePhase::Waiting,
        2 => ResumePhase::Rejected(match reason {
            1 => ResumeRejection::Expired,
            2 => ResumeRejection::UnknownRtt,
            3 => ResumeRejection::ShorterRtt,
            4 => ResumeRejection::LongerRtt,
            5 => ResumeRejection::Congestion,
            _ => return None,
        }),
        3 => ResumePhase::Unvalidated,
        4 => ResumePhase::Validating,
        5 => ResumePhase::Validated,
        6 => ResumePhase::Retreating,
        7 => ResumePhase::Retreated,
        _ => return None,
    })
}

/// The requests of all connections under one congestion control, by their descriptors (bpf(2),
/// `BPF_MAP_TYPE_SK_STORAGE`). A connection under another congestion control keeps a request for later and does not act
/// on it.
#[derive(Debug)]
pub struct ResumeMap {
    map: MapHandle,
}

impl ResumeMap {
    pub(super) fn new(map: MapHandle) -> Self {
        Self { map }
    }

    /// That of the pinned congestion control; none where nothing is pinned, the control has no Careful Resume, or this
    /// process may not read it.
    #[must_use]
    pub fn pinned(name: &str) -> Option<Self> {
        pins::resumes(name).map(Self::new)
    }

    /// The message for users with read access, and no write access, to the pinned storage.
    #[must_use]
    pub fn write_permission_hint(name: &str) -> String {
        PinKind::Resumes.write_permission_hint(name)
    }

    /// Requests a jump for the next transmission of `socket`, in the place of a request that no jump has used.
    ///
    /// # Errors
    /// [`ResumeError::Unfinished`], [`ResumeError::InvalidRtt`], or that of the kernel.
    pub fn request(&self, socket: BorrowedFd<'_>, request: &ResumeRequest) -> Result<(), ResumeError> {
        use ResumePhase::{Retreating, Unvalidated, Validating};
        if let Some(phase @ (Unvalidated | Validating | Retreating)) = self.state(socket).map(|state| state.phase) {
            return Err(ResumeError::Unfinished(phase));
        }
        let words = ResumeWords::from_request(request, clock::monotonic())?;
        Ok(self.map.update(&key(socket), &words.into_bytes(), MapFlags::ANY)?)
    }

    /// The state of the last request of `socket`; `None` without one.
    #[must_use]
    pub fn state(&self, socket: BorrowedFd<'_>) -> Option<ResumeState> {
        let bytes = self.map.lookup(&key(socket), MapFlags::ANY).ok()??;
        ResumeWords::from_bytes(&bytes)?.state()
    }
}

fn key(socket: BorrowedFd<'_>) -> [u8; 4] {
    socket.as_raw_fd().to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: ResumeRequest =
        ResumeRequest { jump_bytes: 500_000, saved_rtt: Duration::from_millis(100), lifetime: Duration::from_secs(60) };

    #[test]
    fn request_bytes_have_the_layout_of_the_kernel_struct() {
        let words = ResumeWords::from_request(&REQUEST, Duration::from_secs(7)).unwrap();
        let bytes = words.into_bytes();
        assert_eq!(bytes.len(), ResumeWords::BYTES);
        assert_eq!(bytes[..8], 67_000_000_u64.to_ne_bytes());
        assert_eq!(bytes[8..20], [500_000_u32, 100_000, 1].map(u32::to_ne_bytes).concat());
        assert!(bytes[20..].iter().all(|byte| *byte == 0));
        let state = ResumeWords::from_bytes(&bytes).unwrap().state().unwrap();
        assert_eq!((state.phase, state.sent_bytes, state.pipe_bytes), (ResumePhase::Waiting, 0, 0));
    }

    #[test]
    fn invalid_rtts_are_rejected_and_long_lifetimes_saturate() {
        for saved_rtt in [Duration::ZERO, Duration::from_nanos(999), Duration::from_secs(5000)] {
            let refused = ResumeWords::from_request(&ResumeRequest { saved_rtt, ..REQUEST }, Duration::ZERO);
            assert!(matches!(refused, Err(ResumeError::InvalidRtt(_))), "{saved_rtt:?}");
        }
        let endless = ResumeRequest { lifetime: Duration::MAX, ..REQUEST };
        assert_eq!(ResumeWords::from_request(&endless, Duration::ZERO).unwrap().deadline_us, u64::MAX);
    }

    #[test]
    fn kernel_state_words_are_parsed() {
        let state = |phase, reason| {
            let mut words = [0; ResumeWords::WORDS];
            words[2..11].copy_from_slice(&[phase, reason, 1448, 10, 300, 200, 100, u32::MAX - 999, 9000]);
            ResumeWords { deadline_us: 0, words }.state()
        };
        let retreated = state(7, 0).unwrap();
        assert_eq!(retreated.phase, ResumePhase::Retreated);
        assert_eq!((retreated.sent_bytes, retreated.pipe_bytes), (10_000, 144_800));
        assert_eq!((retreated.window_before, retreated.window_jumped), (10, 300));
        assert_eq!(state(2, 4).unwrap().phase, ResumePhase::Rejected(ResumeRejection::LongerRtt));
        assert_eq!((state(0, 0), state(8, 0), state(2, 0)), (None, None, None));
        assert!(ResumeWords::from_bytes(&[0; 60]).is_none());
    }
}
