//! Careful resume: stores the congestion windows of the sections to each relay, and lets sessions begin with a part of
//! the stored window. This requires a congestion control that supports the jump (`cubicresume`); other sections begin
//! with their current window.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use ekiden_proto::event::SectionInfo;
use ekiden_proto::key::PublicKey;
use ekiden_proto::resume::{Jump, ResumeMemory};
use tokio::net::TcpStream;

use crate::config::congestion::CongestionControls;

/// Largest number of relays in the ledger. Above this number, relays without a valid window are removed.
const MAX_RELAYS: usize = 4096;

/// The stored windows of all relays, shared by all threads.
#[derive(Debug, Default)]
pub struct ResumeLedger {
    relays: Mutex<HashMap<PublicKey, ResumeMemory>>,
}

impl ResumeLedger {
    /// Requests that the next transmission on a section to `relay` begins with a stored window, if there is one and the
    /// section's congestion control supports the jump. `is_used` states whether the section has carried sessions.
    /// Returns whether a jump was requested.
    pub fn request(&self, relay: PublicKey, section: &TcpStream, is_used: bool, controls: &CongestionControls) -> bool {
        let Some(control) = controls.resuming(section.as_fd()) else { return false };
        let Ok(address) = section.peer_addr() else { return false };
        let grant = self.with(relay, |memory| memory.grant(Instant::now(), address.ip(), is_used));
        grant.is_some_and(|grant| control.request_resume(section.as_fd(), grant).is_ok())
    }

    /// Records the end of a session that has sent `bytes` on a section to `relay`, with the kernel's data about the
    /// section. Returns the jump, if it was `requested`.
    pub fn on_session_end(
        &self,
        relay: PublicKey,
        section: &TcpStream,
        info: &SectionInfo,
        bytes: u64,
        requested: bool,
        controls: &CongestionControls,
    ) -> Option<Jump> {
        let control = controls.resuming(section.as_fd())?;
        let jump = if requested { control.resume_outcome(section.as_fd()) } else { None };
        let now = Instant::now();
        let address = section.peer_addr().ok()?;
        let in_round_trip = info.delivery_rate as f64 * info.min_rtt.as_secs_f64();
        self.with(relay, |memory| {
            if let Some(jump) = jump {
                memory.on_outcome(now, jump.outcome);
            }
            memory.observe(now, bytes.min(in_round_trip as u64), info.min_rtt, address.ip());
        });
        jump
    }

    fn with<T>(&self, relay: PublicKey, f: impl FnOnce(&mut ResumeMemory) -> T) -> T {
        let mut relays = self.relays.lock().unwrap_or_else(PoisonError::into_inner);
        if relays.len() >= MAX_RELAYS && !relays.contains_key(&relay) {
            let now = Instant::now();
            relays.retain(|_, memory| !memory.is_empty(now));
        }
        f(relays.entry(relay).or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;
    use std::sync::Arc;
    use std::time::Duration;

    use ekiden_proto::profile::CompoundTcp;
    use ekiden_proto::resume::{ResumeGrant, ResumeOutcome};
    use socket2::SockRef;

    use super::*;
    use crate::config::congestion::{CongestionHandle, Telemetry};
    use crate::testing::tcp_pair;

    const RELAY: PublicKey = PublicKey([7; 32]);

    /// A congestion control that accepts every request, and reports `outcome`.
    #[derive(Debug, Clone)]
    struct Resuming {
        requests: Arc<Mutex<Vec<ResumeGrant>>>,
        outcome: ResumeOutcome,
    }

    impl CongestionHandle for Resuming {
        fn telemetry(&self, _: BorrowedFd<'_>) -> Option<Telemetry> {
            None
        }

        fn set_options(&self, _: BorrowedFd<'_>, _: CompoundTcp) -> Result<(), String> {
            Ok(())
        }

        fn can_resume(&self) -> bool {
            true
        }

        fn request_resume(&self, _: BorrowedFd<'_>, grant: ResumeGrant) -> Result<(), String> {
            self.requests.lock().unwrap().push(grant);
            Ok(())
        }

        fn resume_outcome(&self, _: BorrowedFd<'_>) -> Option<Jump> {
            Some(Jump { bytes: 1, outcome: self.outcome })
        }
    }

    async fn section(congestion: &str) -> (TcpStream, TcpStream) {
        let (near, far) = tcp_pair().await;
        SockRef::from(&near).set_tcp_congestion(congestion.as_bytes()).unwrap();
        (near, far)
    }

    #[tokio::test]
    async fn session_requests_the_remembered_window_of_its_relay() {
        let requests = Arc::<Mutex<Vec<_>>>::default();
        let control = Resuming { requests: Arc::clone(&requests), outcome: ResumeOutcome::Retreated };
        let controls = CongestionControls::with_control("reno", Box::new(control));
        let ledger = ResumeLedger::default();
        let (reno, _far) = section("reno").await;
        assert!(!ledger.request(RELAY, &reno, false, &controls), "nothing is known");
        let address = reno.peer_addr().unwrap().ip();
        let remember = || {
            let observe = |memory: &mut ResumeMemory| {
                memory.observe(Instant::now(), 1_000_000, Duration::from_millis(50), address)
            };
            ledger.with(RELAY, observe);
        };
        remember();
        assert!(!ledger.request(PublicKey([8; 32]), &reno, false, &controls), "another relay");
        let (cubic, _far) = section("cubic").await;
        assert!(!ledger.request(RELAY, &cubic, false, &controls), "a congestion control without resume");
        assert!(ledger.request(RELAY, &reno, false, &controls));
        assert_eq!(requests.lock().unwrap().iter().map(|grant| grant.jump_bytes).collect::<Vec<_>>(), [500_000]);
        assert!(!ledger.request(RELAY, &reno, false, &controls), "the half is granted already");

        let jump = ledger.on_session_end(RELAY, &reno, &SectionInfo::default(), 1000, true, &controls);
        assert_eq!(jump.unwrap().outcome, ResumeOutcome::Retreated);
        remember();
        assert!(!ledger.request(RELAY, &reno, false, &controls), "a pause after the retreat");
        assert_eq!(
            ledger.on_session_end(RELAY, &reno, &SectionInfo::default(), 1000, false, &controls),
            None,
            "the jump of an earlier session"
        );
    }
}
