//! The log line of one HTTP request.

use std::time::Instant;

use ekiden_proto::direction::Direction;
use ekiden_proto::event::{Event, RequestCompleted};
use ekiden_proto::wire::http::RequestHead;

use super::rewriting;
use crate::session::Session;

/// Emits the event of a request when the exchange ends.
pub struct RequestLog<'a> {
    session: &'a Session,
    /// The request's method.
    pub method: String,
    url: String,
    began: Instant,
    bytes_before: (u64, u64),
    /// The status that the client received; 0 if none.
    pub status: u16,
    /// Whether an idle connection was used.
    pub reused: bool,
}

impl<'a> RequestLog<'a> {
    /// Begins the record of a request.
    pub fn new(session: &'a Session, head: &RequestHead) -> Self {
        Self::of(session, head.method.clone(), rewriting::url_for_the_log(head))
    }

    /// Begins the record of a request with this method and URL.
    pub fn of(session: &'a Session, method: String, url: String) -> Self {
        let bytes_before = (session.stats.bytes(Direction::Up), session.stats.bytes(Direction::Down));
        Self { session, method, url, began: Instant::now(), bytes_before, status: 0, reused: false }
    }
}

impl Drop for RequestLog<'_> {
    fn drop(&mut self) {
        let stats = &self.session.stats;
        let request = RequestCompleted {
            session: self.session.id,
            method: std::mem::take(&mut self.method),
            url: std::mem::take(&mut self.url),
            status: self.status,
            reused: self.reused,
            bytes_up: stats.bytes(Direction::Up) - self.bytes_before.0,
            bytes_down: stats.bytes(Direction::Down) - self.bytes_before.1,
            duration: self.began.elapsed(),
        };
        self.session.context.services().events.emit(&Event::Request(Box::new(request)));
    }
}
