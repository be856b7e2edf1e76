//! The export format: OTLP over HTTP in JSON (OpenTelemetry Protocol 1.x, "JSON Protobuf Encoding"). Field names are in
//! camel case, ids in hexadecimal, and 64-bit integers are strings.

use std::ops::Range;

use serde::Serialize;
use serde_json::Value as Json;

/// The kind of a span (opentelemetry.proto.trace.v1, `Span.SpanKind`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Work inside this relay.
    Internal,
    /// The processing of a client's request.
    Server,
    /// A request to another process.
    Client,
}

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum AttributeValue {
    /// A string value of an attribute.
    #[serde(rename = "stringValue")]
    Text(String),
    /// An integer, as a decimal string (OTLP/JSON).
    #[serde(rename = "intValue")]
    Integer(String),
    /// A floating-point value of an attribute.
    #[serde(rename = "doubleValue")]
    Double(f64),
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Attribute {
    key: &'static str,
    value: AttributeValue,
}

impl Attribute {
    /// Creates an attribute with a text value.
    pub fn text(key: &'static str, value: impl ToString) -> Self {
        Self { key, value: AttributeValue::Text(value.to_string()) }
    }

    /// Creates an attribute with an integer.
    pub fn number(key: &'static str, value: impl Into<u64>) -> Self {
        Self { key, value: AttributeValue::Integer(value.into().to_string()) }
    }

    /// Creates an attribute with a duration in seconds.
    pub fn seconds(key: &'static str, value: std::time::Duration) -> Self {
        Self { key, value: AttributeValue::Double(value.as_secs_f64()) }
    }
}

/// A span with its times in nanoseconds of Unix time.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    name: &'static str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Attribute>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<SpanEvent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<SpanStatus>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SpanEvent {
    time_unix_nano: String,
    name: &'static str,
    attributes: Vec<Attribute>,
}

#[derive(Debug, Serialize)]
struct SpanStatus {
    code: u8,
    message: String,
}

impl Span {
    /// Creates a span of a trace, with an optional parent span. `times` are in nanoseconds since the Unix epoch.
    pub fn new(
        name: &'static str,
        kind: SpanKind,
        trace: impl ToString,
        id: impl ToString,
        parent: Option<String>,
        times: Range<u64>,
    ) -> Self {
        Self {
            trace_id: trace.to_string(),
            span_id: id.to_string(),
            parent_span_id: parent,
            name,
            kind: match kind {
                SpanKind::Internal => 1,
                SpanKind::Server => 2,
                SpanKind::Client => 3,
            },
            start_time_unix_nano: times.start.to_string(),
            end_time_unix_nano: times.end.max(times.start).to_string(),
            attributes: Vec::new(),
            events: Vec::new(),
            status: None,
        }
    }

    /// Adds attributes to the span.
    #[must_use]
    pub fn with_attributes(mut self, attributes: impl IntoIterator<Item = Attribute>) -> Self {
        self.attributes.extend(attributes);
        self
    }

    /// Adds an event to the span.
    #[must_use]
    pub fn with_event(mut self, name: &'static str, at: u64, attributes: Vec<Attribute>) -> Self {
        self.events.push(SpanEvent { time_unix_nano: at.to_string(), name, attributes });
        self
    }

    /// Marks the span as failed.
    #[must_use]
    pub fn with_error(mut self, message: String) -> Self {
        const STATUS_CODE_ERROR: u8 = 2;
        self.status = Some(SpanStatus { code: STATUS_CODE_ERROR, message });
        self
    }
}

/// Returns the body of an export request (`ExportTraceServiceRequest`) with `spans` of the relay `name`.
///
/// # Errors
/// The spans cannot be serialised, which is not expected to occur.
pub fn export_request(name: &str, spans: &[Span]) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct ExportRequest<'a> {
        resource_spans: [ResourceSpans<'a>; 1],
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct ResourceSpans<'a> {
        resource: Resource,
        scope_spans: [ScopeSpans<'a>; 1],
    }
    #[derive(Serialize)]
    struct Resource {
        attributes: [Attribute; 3],
    }
    #[derive(Serialize)]
    struct ScopeSpans<'a> {
        scope: Scope,
        spans: &'a [Span],
    }
    #[derive(Serialize)]
    struct Scope {
        name: &'static str,
        version: &'static str,
    }
    let version = env!("CARGO_PKG_VERSION");
    let attributes = [
        Attribute::text("service.name", "ekiden"),
        Attribute::text("service.version", version),
        Attribute::text("service.instance.id", name),
    ];
    let scope_spans = [ScopeSpans { scope: Scope { name: "ekiden", version }, spans }];
    serde_json::to_vec(&ExportRequest {
        resource_spans: [ResourceSpans { resource: Resource { attributes }, scope_spans }],
    })
}

/// Returns the number of spans that the collector has rejected, according to its response
/// (`ExportTracePartialSuccess`).
#[must_use]
pub fn rejected_spans(answer: &[u8]) -> u64 {
    let answer: Json = serde_json::from_slice(answer).unwrap_or_default();
    let spans = &answer["partialSuccess"]["rejectedSpans"];
    spans.as_u64().or_else(|| spans.as_str()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn export_request_matches_otlp_json() {
        let (start, end) = (5, 3);
        let span = Span::new("session", SpanKind::Server, "aa", "bb", None, start..end)
            .with_attributes([Attribute::text("a", "b"), Attribute::number("n", 7_u64)])
            .with_attributes([Attribute::seconds("s", std::time::Duration::from_millis(250))])
            .with_event("first byte", 4, Vec::new());
        let child =
            Span::new("dial", SpanKind::Client, "aa", "cc", Some("bb".to_owned()), 1..2).with_error("refused".into());
        let request: Json = serde_json::from_slice(&export_request("tokyo", &[span, child]).unwrap()).unwrap();
        let resource = &request["resourceSpans"][0];
        let instance = json!({"key": "service.instance.id", "value": {"stringValue": "tokyo"}});
        assert_eq!(resource["resource"]["attributes"][2], instance);
        let spans = &resource["scopeSpans"][0]["spans"];
        let expected = json!({
            "traceId": "aa", "spanId": "bb", "name": "session", "kind": 2,
            "startTimeUnixNano": "5", "endTimeUnixNano": "5",
            "attributes": [
                {"key": "a", "value": {"stringValue": "b"}},
                {"key": "n", "value": {"intValue": "7"}},
                {"key": "s", "value": {"doubleValue": 0.25}},
            ],
            "events": [{"timeUnixNano": "4", "name": "first byte", "attributes": []}],
        });
        assert_eq!(spans[0], expected);
        assert_eq!((&spans[1]["parentSpanId"], &spans[1]["kind"]), (&json!("bb"), &json!(3)));
        assert_eq!(spans[1]["status"], json!({"code": 2, "message": "refused"}));
    }

    #[test]
    fn rejected_span_count_is_read_from_the_response() {
        for (answer, count) in [
            (r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}"#, 3),
            (r#"{"partialSuccess":{"rejectedSpans":4}}"#, 4),
            (r#"{"partialSuccess":{}}"#, 0),
            ("{}", 0),
            ("", 0),
            ("<html>", 0),
            (r#"{"partialSuccess":{"rejectedSpans":"many"}}"#, 0),
        ] {
            assert_eq!(rejected_spans(answer.as_bytes()), count, "{answer}");
        }
    }
}
