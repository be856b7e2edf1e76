//! A running session's sections as numbers: what waits for them each time somebody looks, and what the kernel knows of
//! them some seconds apart.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ekiden_proto::direction::Direction;
use ekiden_proto::event::SectionInfo;
use ekiden_sys::outq::{unread, unsent};
use ekiden_sys::tcp_info::tcp_info;
use tokio::net::TcpStream;

use super::Session;
use crate::metrics::SampleMoment;

/// The shortest time between two looks at what the kernel knows: less says little of a share.
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_secs(3);

/// What the looks before have seen.
#[derive(Debug)]
pub struct SectionSamples {
    /// What had moved by the last look,
    looked: u64,
    /// and by the last one at what the kernel knows, and when that was.
    moved: u64,
    at: Instant,
    down: SectionInfo,
    up: SectionInfo,
}

impl SectionSamples {
    /// Nothing was looked at yet.
    #[must_use]
    pub fn new() -> Self {
        Self { looked: 0, moved: 0, at: Instant::now(), down: SectionInfo::default(), up: SectionInfo::default() }
    }
}

impl Session {
    /// Looks, unless nothing has moved since and nothing waits.
    pub(super) fn emit_samples(&self) {
        let samples = &mut *self.samples.borrow_mut();
        let moved = self.stats.moved();
        if samples.looked == moved && samples.moved == moved && !self.stats.has_queued() {
            return;
        }
        samples.looked = moved;
        let server = self.server_section();
        self.stats.set_queued(Direction::Down, server.as_ref().map_or(0, |server| waiting_bytes(server, &self.client)));
        self.stats.set_queued(Direction::Up, server.as_ref().map_or(0, |server| waiting_bytes(&self.client, server)));
        if samples.moved == moved || samples.at.elapsed() < MIN_SAMPLE_INTERVAL {
            return;
        }
        samples.moved = moved;
        let span = std::mem::replace(&mut samples.at, Instant::now()).elapsed();
        self.section_sample("down", &self.client, &mut samples.down, span);
        if let Some(server) = &server {
            self.section_sample("up", server, &mut samples.up, span);
        }
    }

    /// Notes what is new of one section.
    fn section_sample(&self, section: &'static str, stream: &TcpStream, before: &mut SectionInfo, span: Duration) {
        // Fails only when the socket is already dead.
        let Ok(now) = tcp_info(stream.as_fd()) else { return };
        if now.segments_out < before.segments_out {
            // Another connection, of the next request.
            *before = SectionInfo::default();
        }
        self.context.shared().metrics.sections.record_sample(section, SampleMoment::Running, before, &now, span);
        *before = now;
    }
}

/// Bytes that have come from one section and have not left by the other.
fn waiting_bytes(from: &TcpStream, to: &TcpStream) -> usize {
    // A dead socket has nothing that could still go anywhere.
    unread(from.as_fd()).unwrap_or(0) + unsent(to.as_fd()).unwrap_or(0)
}
