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
        let mut story = self.story.take();
        let book = &self.entrance.shared().estimates;
        story.watches.iter_mut().flatten().for_each(|watch| watch.sample(&self.meter, book));
        let duration = self.opened.elapsed();
        let down = tcp_info(self.client.as_fd()).ok();
        let up = story.stream.as_ref().and_then(|stream| tcp_info(stream.as_fd()).ok()).or(story.up);
        let cut_off = if std::thread::panicking() { EndReason::Panicked } else { EndReason::Drained };
        let end = story.end.unwrap_or(cut_off);
        SessionClosed {
            user: story.user.map(String::from),
            peer: self.peer_name(),
            trace: self.errand.trace(),
            target: story.target,
            server: story.server,
            path: self.path_name(),
            chosen: self.final_choice().map(Box::new),
            end,
            detail: story.detail.or_else(|| end.detail().map(str::to_owned)),
            duration,
            handshake: story.asked.map(|asked| asked.saturating_duration_since(self.opened)),
            first_byte: self
                .meter
                .first_byte_at()
                .zip(story.asked)
                .map(|(first, asked)| first.saturating_duration_since(asked)),
            connect: story.connect,
            hops: story.hops,
            bytes_up: self.meter.bytes(Direction::Up),
            bytes_down: self.meter.bytes(Direction::Down),
            bytes_spliced: self.meter.spliced_bytes(),
            down,
            up,
            limited: limit.as_ref().map(Diagnosis::factor),
            limited_why: limit.map(|limit| limit.why),
            ..SessionClosed::new(self.id, self.entrance.listener.name.clone(), self.errand.client)
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
            self.entrance.shared().held.remove(ends);
        }
        if let Some(ahead) = self.take_pre_dialed() {
            ahead.abandon();
        }
        self.entrance.worker.unregister(self.place.get());
        // The reader of the closing event finds the place free.
        drop(self.permit.take());
        self.entrance.shared().emit_closed(closed, self.previous_relay());
    }
}
