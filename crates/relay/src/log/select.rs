//! Which events have a line, and which fields of the line are redacted.

use std::borrow::Cow;

use ekiden_proto::event::{Closed, End, Event, Request};

use crate::config::{LogLevel, Redact};

/// Whether `event` has a line at `level`.
pub fn is_wanted(event: &Event, level: LogLevel) -> bool {
    match (level, event) {
        (LogLevel::Off, _) => false,
        (LogLevel::Problems, Event::Closed(closed)) => is_problem(closed.end),
        // A status of 500 and above says that the relay or the server failed.
        (LogLevel::Problems, Event::Request(request)) => request.status >= 500,
        (LogLevel::Problems | LogLevel::Sessions, _) => true,
    }
}

/// Whether `end` is a failure: the session did not begin, or was broken on the way.
const fn is_problem(end: End) -> bool {
    match end {
        End::Finished
        | End::ResetByClient
        | End::ResetByServer
        | End::ClientLost
        | End::Idle
        | End::HalfCloseIdle
        | End::LeftEarly
        | End::Drained => false,
        End::ServerLost
        | End::Altered(_)
        | End::HandshakeTimeout
        | End::BadHandshake(_)
        | End::Unauthenticated
        | End::Overloaded
        | End::ClientLimit
        | End::ConnectFailed(_)
        | End::Panicked => true,
    }
}

/// `event` without the redacted fields.
pub fn redacted(event: &Event, redact: Redact) -> Cow<'_, Event> {
    let Redact { client, target } = redact;
    match event {
        Event::Closed(closed) if client || target => {
            let mut closed = Closed::clone(closed);
            if client {
                (closed.client, closed.user) = (None, None);
            }
            if target {
                (closed.target, closed.server) = (None, None);
                // The detail may quote another relay or a server, and thus name the target.
                closed.detail = closed.detail.filter(|_| !matches!(closed.end, End::ConnectFailed(_)));
            }
            Cow::Owned(Event::Closed(Box::new(closed)))
        }
        Event::Request(request) if target => {
            Cow::Owned(Event::Request(Box::new(Request { url: "-".to_owned(), ..Request::clone(request) })))
        }
        Event::PathChanged { likely_bytes, likely_direction, from, to, why, .. } if target => {
            Cow::Owned(Event::PathChanged {
                prefix: None,
                likely_bytes: *likely_bytes,
                likely_direction,
                from: from.clone(),
                to: to.clone(),
                why: why.clone(),
            })
        }
        _ => Cow::Borrowed(event),
    }
}

#[cfg(test)]
mod tests {
    use ekiden_proto::addr::ClientAddr;

    use super::*;

    #[test]
    fn problems_are_what_went_wrong() {
        let closed = |end| {
            let client = ClientAddr("192.0.2.1:1".parse().unwrap());
            Event::Closed(Box::new(Closed { end, ..Closed::new(1, "door".to_owned(), client) }))
        };
        let levels = [LogLevel::Sessions, LogLevel::Problems, LogLevel::Off];
        let wanted = |event: &Event| levels.map(|level| is_wanted(event, level));
        assert_eq!(wanted(&closed(End::Finished)), [true, false, false]);
        assert_eq!(wanted(&closed(End::Panicked)), [true, true, false]);
        assert_eq!(wanted(&Event::Reloaded { listeners: 1 }), [true, true, false]);
        assert_eq!(wanted(&Event::Warning { message: String::new() }), [true, true, false]);
    }

    #[test]
    fn the_network_of_a_changed_path_is_a_target() {
        let event = Event::PathChanged {
            prefix: Some("192.0.2.0/24".parse().unwrap()),
            likely_bytes: 1,
            likely_direction: "down",
            from: "direct".to_owned(),
            to: "osaka".to_owned(),
            why: String::new(),
        };
        let text = |redact| serde_json::to_string(&redacted(&event, redact)).unwrap();
        assert!(text(Redact { client: true, target: false }).contains("192.0.2."));
        assert!(!text(Redact { client: false, target: true }).contains("192.0.2."));
    }
}
