//! The spans of a session that has ended. Attributes have the names of OpenTelemetry's semantic conventions where such
//! names exist; all other attributes begin with `ekiden.`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ekiden_proto::addr::Host;
use ekiden_proto::event::{EndReason, SectionInfo, SessionClosed};

use super::EndedSession;
use super::ids::SessionSpanIds;
use super::otlp::{Attribute, Span, SpanKind};
use crate::config::TracesConfig;

/// Times of a session's phases, in nanoseconds of Unix time.
struct SpanTimes {
    started: u64,
    /// `None` if the client sent no complete request.
    requested: Option<u64>,
    /// `None` if no path was established.
    connected: Option<u64>,
    first_byte: Option<u64>,
    ended: u64,
}

impl SpanTimes {
    fn from_closed(closed: &SessionClosed, at: SystemTime) -> Self {
        let end = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let begin = end.saturating_sub(closed.duration);
        let requested = closed.handshake.map(|handshake| begin + handshake);
        let after = |span: Option<Duration>| {
            requested.zip(span).map(|(requested, span)| nanoseconds((requested + span).min(end)))
        };
        // The connect time may be set although the answer to OPEN was an error.
        let is_connected = !matches!(closed.end, EndReason::ConnectFailed(_));
        Self {
            started: nanoseconds(begin),
            requested: requested.map(|requested| nanoseconds(requested.min(end))),
            connected: after(closed.connect).filter(|_| is_connected),
            first_byte: after(closed.first_byte),
            ended: nanoseconds(end),
        }
    }
}

/// Converts a time to nanoseconds; a `u64` is sufficient until the year 2554.
fn nanoseconds(since_epoch: Duration) -> u64 {
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns all spans of a session: the session span, and the spans of ingress, dial and transfer.
pub fn session_spans(ended: &EndedSession, traces: &TracesConfig) -> Vec<Span> {
    let EndedSession { trace, sender, closed, ended_at: at } = ended;
    let (ids, times) = (SessionSpanIds::derive(*trace, &traces.key), SpanTimes::from_closed(closed, *at));
    let caller = sender.as_ref().map(|key| SessionSpanIds::derive(*trace, key).session.to_string());
    let part = |name, kind, id, span| Span::new(name, kind, trace, id, Some(ids.session.to_string()), span);
    let root = Span::new("session", SpanKind::Server, trace, ids.session, caller, times.started..times.ended);
    let mut spans = vec![session_span(root, closed, traces.client_address)];
    spans.push(part("ingress", SpanKind::Internal, ids.ingress, times.started..times.requested.unwrap_or(times.ended)));
    if let Some(requested) = times.requested {
        let span = part("dial", SpanKind::Client, ids.dial, requested..times.connected.unwrap_or(times.ended));
        spans.push(dial_span(span, closed, requested));
    }
    if let Some(connected) = times.connected {
        let span = part("transfer", SpanKind::Internal, ids.transfer, connected..times.ended);
        spans.push(transfer_span(span, closed, times.first_byte.map(|first| first.max(connected))));
    }
    spans
}

fn session_span(span: Span, closed: &SessionClosed, client_address: bool) -> Span {
    let mut attributes = vec![
        Attribute::text("network.transport", "tcp"),
        Attribute::text("ekiden.listener", &closed.listener),
        Attribute::number("ekiden.session", closed.session),
        Attribute::text("ekiden.path", &closed.path),
        Attribute::text("ekiden.end", closed.end.as_str()),
        Attribute::number("ekiden.bytes_up", closed.bytes_up),
        Attribute::number("ekiden.bytes_down", closed.bytes_down),
    ];
    attributes.extend(closed.peer.as_ref().map(|peer| Attribute::text("ekiden.peer", peer)));
    attributes.extend(closed.limited.map(|limited| Attribute::text("ekiden.limited", limited)));
    if let Some(target) = &closed.target {
        attributes.push(match &target.host {
            Host::Name(name) => Attribute::text("server.address", name),
            Host::Ip(ip) => Attribute::text("server.address", ip),
        });
        attributes.push(Attribute::number("server.port", target.port));
    }
    if let Some(client) = closed.client.filter(|_| client_address) {
        attributes.push(Attribute::text("client.address", client.0.ip()));
        attributes.push(Attribute::number("client.port", client.0.port()));
    }
    let span = span.with_attributes(attributes);
    if is_failure(closed.end) { failed_span(span, closed) } else { span }
}

/// Returns whether an end is an error that may need an investigation; other ends were intended or expected.
fn is_failure(end: EndReason) -> bool {
    !matches!(
        end,
        EndReason::Finished | EndReason::LeftEarly | EndReason::Idle | EndReason::HalfCloseIdle | EndReason::Drained
    )
}

fn failed_span(span: Span, closed: &SessionClosed) -> Span {
    let word = closed.end.as_str();
    let message = closed.detail.as_ref().map_or_else(|| word.to_owned(), |detail| format!("{word}: {detail}"));
    span.with_attributes([Attribute::text("error.type", word)]).with_error(message)
}

/// Creates the span of the dial, with the time from OPEN to the answer as reported by each relay.
fn dial_span(span: Span, closed: &SessionClosed, requested: u64) -> Span {
    let mut attributes = vec![Attribute::text("ekiden.path", &closed.path)];
    if let Some(server) = closed.server {
        attributes.push(Attribute::text("network.peer.address", server.0.ip()));
        attributes.push(Attribute::number("network.peer.port", server.0.port()));
    }
    if let Some(chosen) = &closed.chosen {
        attributes.push(Attribute::text("ekiden.reason", chosen.reason));
        attributes.extend(chosen.predicted.map(|span| Attribute::seconds("ekiden.predicted_seconds", span)));
        attributes.extend(chosen.took.map(|span| Attribute::seconds("ekiden.took_seconds", span)));
    }
    let span = (1_u64..).zip(&closed.hops).fold(span.with_attributes(attributes), |span, (number, took)| {
        let hop_attributes =
            vec![Attribute::number("ekiden.hop", number), Attribute::seconds("ekiden.hop_seconds", *took)];
        span.with_event("hop answered", requested.saturating_add(nanoseconds(*took)), hop_attributes)
    });
    if matches!(closed.end, EndReason::ConnectFailed(_)) { failed_span(span, closed) } else { span }
}

fn transfer_span(span: Span, closed: &SessionClosed, first_byte: Option<u64>) -> Span {
    let mut attributes = vec![Attribute::number("ekiden.bytes_spliced", closed.bytes_spliced)];
    attributes.extend(closed.down.iter().flat_map(|info| section_attributes(DOWN_ATTRIBUTES, info)));
    attributes.extend(closed.up.iter().flat_map(|info| section_attributes(UP_ATTRIBUTES, info)));
    let span = span.with_attributes(attributes);
    match first_byte {
        Some(at) => span.with_event("first byte", at, Vec::new()),
        None => span,
    }
}

/// Round-trip time, minimum round-trip time, segments sent and retransmitted.
const DOWN_ATTRIBUTES: [&str; 4] =
    ["ekiden.down.rtt_seconds", "ekiden.down.min_rtt_seconds", "ekiden.down.segments_out", "ekiden.down.retransmitted"];
const UP_ATTRIBUTES: [&str; 4] =
    ["ekiden.up.rtt_seconds", "ekiden.up.min_rtt_seconds", "ekiden.up.segments_out", "ekiden.up.retransmitted"];

fn section_attributes(
    [rtt, min_rtt, segments_out, retransmitted]: [&'static str; 4],
    info: &SectionInfo,
) -> [Attribute; 4] {
    [
        Attribute::seconds(rtt, info.rtt),
        Attribute::seconds(min_rtt, info.min_rtt),
        Attribute::number(segments_out, info.segments_out),
        Attribute::number(retransmitted, info.retransmitted),
    ]
}
