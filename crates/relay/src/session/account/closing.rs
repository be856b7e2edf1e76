//! The end of a session: its closing event, and what it leaves to others.

use std::os::fd::AsFd;

use ekiden_proto::direction::Direction;
use ekiden_proto::event::{EndReason, SessionClosed};
use ekiden_proto::limiting::Diagnosis;
use ekiden_sys::tcp_info::tcp_info;

use super::Session;
use crate::pump;

impl Session {
    fn closed_event(&self) -> SessionClosed {
        self.sample_limits_at_end();
        let limit = self.limit();
        let mut state = self.state.take();
        let estimates = &self.context.shared().estimates;
        state.watches.iter_mut().flatten().for_each(|watch| watch.sample(&self.stats, estimates));
        let duration = self.opened.elapsed();
        let down = tcp_info(self.client.as_fd()).ok();
        let up = state.stream.as_ref().and_then(|stream| tcp_info(stream.as_fd()).ok()).or(state.up);
        let cut_off = if std::thread::panicking() { EndReason::Panicked } else { EndReason::Drained };
        let end = state.end.unwrap_or(cut_off);
        SessionClosed {
            user: state.user.map(String::from),
            peer: self.peer_name(),
            trace: self.dial_context.trace(),
            target: state.target,
            server: state.server,
            path: self.path_name(),
            chosen: self.final_choice().map(Box::new),
            end,
            detail: state.detail.or_else(|| end.detail().map(str::to_owned)),
            duration,
            handshake: state.asked.map(|asked| asked.saturating_duration_since(self.opened)),
            first_byte: self
                .stats
                .first_byte_at()
                .zip(state.asked)
                .map(|(first, asked)| first.saturating_duration_since(asked)),
            connect: state.connect,
            hops: state.hops,
            bytes_up: self.stats.bytes(Direction::Up),
            bytes_down: self.stats.bytes(Direction::Down),
            bytes_spliced: self.stats.spliced_bytes(),
            down,
            up,
            limited: limit.as_ref().map(Diagnosis::factor),
            limited_why: limit.map(|limit| limit.why),
            ..SessionClosed::new(self.id, self.context.listener.name.clone(), self.dial_context.client)
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let closed = self.closed_event();
        if matches!(closed.end, EndReason::Drained | EndReason::Panicked) {
            pump::abort(&self.client);
        }
        if let Some(ends) = &self.caught {
            self.context.shared().pending_connections.remove(ends);
        }
        if let Some(pre_dialed) = self.take_pre_dialed() {
            pre_dialed.abandon();
        }
        self.context.worker.unregister(self.place.get());
        // The reader of the closing event finds the place free.
        drop(self.permit.take());
        self.context.shared().emit_closed(closed, self.previous_relay());
    }
}
