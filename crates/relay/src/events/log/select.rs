//! Determines which events have a log line, and which fields of the line are redacted.

use std::borrow::Cow;

use ekiden_proto::event::{EndReason, Event, RequestCompleted, SessionClosed};

use crate::config::{LogLevel, Redaction};

/// Returns whether `event` has a line at `level`.
pub fn is_logged(event: &Event, level: LogLevel) -> bool {
    match (level, event) {
        (LogLevel::Off, _) => false,
        (LogLevel::Problems, Event::Closed(closed)) => is_problem(closed.end),
        // A status of 500 or above means that the relay or the server failed.
        (LogLevel::Problems, Event::Request(request)) => request.status >= 500,
        (LogLevel::Problems | LogLevel::Sessions, _) => true,
    }
}

/// Returns whether `end` is a failure: the session did not start, or was aborted.
const fn is_problem(end: EndReason) -> bool {
    match end {
        EndReason::Finished
        | EndReason::ResetByClient
        | EndReason::ResetByServer
        | EndReason::ClientLost
        | EndReason::Idle
        | EndReason::HalfCloseIdle
        | EndReason::LeftEarly
        | EndReason::Drained => false,
        EndReason::ServerLost
        | EndReason::Altered(_)
        | EndReason::HandshakeTimeout
        | EndReason::BadHandshake(_)
        | EndReason::Unauthenticated
        | EndReason::Overloaded
        | EndReason::ClientLimit
        | EndReason::ConnectFailed(_)
        | EndReason::OverQuota
        | EndReason::Panicked => true,
    }
}

/// Returns `event` without the redacted fields.
pub fn redacted(event: &Event, redact: Redaction) -> Cow<'_, Event> {
    let Redaction { client, target } = redact;
    match event {
        Event::Closed(closed) if client || target => {
            let mut closed = SessionClosed::clone(closed);
            if client {
                (closed.client, closed.user) = (None, None);
            }
            if target {
                (closed.target, closed.server_name, closed.server) = (None, None, None);
                // The detail may contain text from another relay or a server, which may include the target.
                closed.detail = closed.detail.filter(|_| !matches!(closed.end, EndReason::ConnectFailed(_)));
            }
            Cow::Owned(Event::Closed(Box::new(closed)))
        }
        Event::Request(request) if target => Cow::Owned(Event::Request(Box::new(RequestCompleted {
            url: "-".to_owned(),
            ..RequestCompleted::clone(request)
        }))),
        Event::QuotaUsed { scope: "user", quota, until, .. } if client => {
            Cow::Owned(Event::QuotaUsed { scope: "user", name: None, quota: quota.clone(), until: until.clone() })
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
    fn problems_level_omits_successful_sessions() {
        let closed = |end| {
            let client = ClientAddr("192.0.2.1:1".parse().unwrap());
            Event::Closed(Box::new(SessionClosed { end, ..SessionClosed::new(1, "door".to_owned(), client) }))
        };
        let levels = [LogLevel::Sessions, LogLevel::Problems, LogLevel::Off];
        let logged_at = |event: &Event| levels.map(|level| is_logged(event, level));
        assert_eq!(logged_at(&closed(EndReason::Finished)), [true, false, false]);
        assert_eq!(logged_at(&closed(EndReason::Panicked)), [true, true, false]);
        assert_eq!(logged_at(&Event::Reloaded { listeners: 1 }), [true, true, false]);
        assert_eq!(logged_at(&Event::Warning { message: String::new() }), [true, true, false]);
    }

    #[test]
    fn target_redaction_hides_the_prefix_of_a_changed_path() {
        let event = Event::PathChanged {
            prefix: Some("192.0.2.0/24".parse().unwrap()),
            likely_bytes: 1,
            likely_direction: "down",
            from: "direct".to_owned(),
            to: "osaka".to_owned(),
            why: String::new(),
        };
        let text = |redact| serde_json::to_string(&redacted(&event, redact)).unwrap();
        assert!(text(Redaction { client: true, target: false }).contains("192.0.2."));
        assert!(!text(Redaction { client: false, target: true }).contains("192.0.2."));
    }
}
