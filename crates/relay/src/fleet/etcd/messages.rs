//! Messages of etcd's JSON gateway: protobuf as JSON, with integers of 64 bits as strings and bytes as base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::error::EtcdError;

/// The header of a response.
#[derive(Debug, Default, Deserialize)]
pub struct ResponseHeader {
    /// The revision of the store.
    #[serde(default, deserialize_with = "integer")]
    pub revision: i64,
}

/// A key with its value.
#[derive(Debug, Deserialize)]
pub struct KeyValue {
    #[serde(default, deserialize_with = "bytes")]
    pub key: Vec<u8>,
    /// The value; empty for a deleted key.
    #[serde(default, deserialize_with = "bytes")]
    pub value: Vec<u8>,
}

/// The response to a read.
#[derive(Debug, Deserialize)]
pub struct RangeResponse {
    pub header: ResponseHeader,
    /// The keys in order.
    #[serde(default)]
    pub kvs: Vec<KeyValue>,
    /// Whether more keys are in the range.
    #[serde(default)]
    pub more: bool,
}

/// The response to a write, and to the end of a lease.
#[derive(Debug, Deserialize)]
pub struct WriteResponse {
    pub header: ResponseHeader,
}

/// The response to the grant or the renewal of a lease.
#[derive(Debug, Deserialize)]
pub struct LeaseResponse {
    pub header: ResponseHeader,
    /// The identifier of the lease.
    #[serde(rename = "ID", deserialize_with = "integer")]
    pub id: i64,
    /// Seconds until the lease ends; 0 for a lease that has ended.
    #[serde(rename = "TTL", default, deserialize_with = "integer")]
    pub ttl: i64,
}

/// The response to an authentication request.
#[derive(Deserialize)]
pub struct AuthenticateResponse {
    /// The token for the following requests.
    pub token: String,
}

/// A change of a key.
#[derive(Debug, Deserialize)]
pub struct WatchEvent {
    /// Whether the key was written or deleted.
    #[serde(rename = "type", default)]
    pub kind: EventKind,
    pub kv: Option<KeyValue>,
}

/// The kind of a change.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EventKind {
    /// The key was written.
    #[default]
    Put,
    /// The key was deleted.
    Delete,
}

/// A message of a watch.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WatchResponse {
    pub events: Vec<WatchEvent>,
    /// Whether etcd has ended the watch.
    pub canceled: bool,
    /// Why etcd has ended the watch.
    pub cancel_reason: String,
    /// Nonzero if the first revision of the watch is compacted.
    #[serde(deserialize_with = "integer")]
    pub compact_revision: i64,
}

impl WatchResponse {
    /// Checks that etcd has not ended the watch.
    ///
    /// # Errors
    /// etcd has ended the watch.
    pub fn check_open(&self) -> Result<(), EtcdError> {
        if self.compact_revision > 0 {
            return Err(EtcdError::unavailable(
                "etcd has compacted the changes since the last read: all entries are read again",
            ));
        }
        if self.canceled {
            return Err(EtcdError::unavailable(format!("etcd has ended the watch: {}", self.cancel_reason)));
        }
        Ok(())
    }
}

/// Encodes a key or a value for a request.
pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// Parses a response; any other form is an error.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, EtcdError> {
    serde_json::from_slice(body).map_err(unexpected_form)
}

/// Parses a message of a stream: a line with a result or an error.
///
/// # Errors
/// The line is an error, or has another form.
pub fn parse_stream_line<T: DeserializeOwned>(line: &[u8]) -> Result<T, EtcdError> {
    #[derive(Deserialize)]
    struct StreamItem<T> {
        result: Option<T>,
        error: Option<Value>,
    }
    match parse(line)? {
        StreamItem { result: Some(result), .. } => Ok(result),
        StreamItem { error, .. } => Err(error
            .as_ref()
            .and_then(EtcdError::from_gateway)
            .unwrap_or_else(|| EtcdError::unavailable("a line of a stream has neither a result nor an error"))),
    }
}

fn unexpected_form(error: serde_json::Error) -> EtcdError {
    EtcdError::unavailable(format!("unexpected response: {error}"))
}

fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    STANDARD.decode(String::deserialize(deserializer)?).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_response_has_revision_and_entries() {
        let page: RangeResponse = parse(
            br#"{"header":{"cluster_id":"10144879847569953045","revision":"9007199254740993"},
                 "kvs":[{"key":"L2EvMQ==","mod_revision":"2","value":"eHg="},{"key":"L2EvMg=="}],"more":true,"count":"3"}"#,
        )
        .unwrap();
        // 2^53 + 1, which JSON parsers with 64-bit floating-point numbers cannot represent.
        assert_eq!(page.header.revision, 9_007_199_254_740_993);
        let entries: Vec<_> = page.kvs.iter().map(|kv| (kv.key.as_slice(), kv.value.as_slice())).collect();
        assert_eq!(entries, [(&b"/a/1"[..], &b"xx"[..]), (b"/a/2", b"")]);
        assert!(page.more);
    }

    #[test]
    fn watch_response_reports_puts_deletions_and_cancellation() {
        let changes: WatchResponse = parse_stream_line(
            br#"{"result":{"header":{"revision":"4"},"events":[{"kv":{"key":"YQ==","value":"eA=="}},{"type":"DELETE","kv":{"key":"YQ=="}}]}}"#,
        )
        .unwrap();
        assert!(changes.check_open().is_ok());
        assert_eq!(changes.events.iter().map(|event| event.kind == EventKind::Put).collect::<Vec<_>>(), [true, false]);
        for (line, words) in [
            (r#"{"result":{"canceled":true,"compact_revision":"4"}}"#, "all entries are read again"),
            (
                r#"{"result":{"created":true,"canceled":true,"cancel_reason":"permission denied"}}"#,
                "ended the watch: permission",
            ),
        ] {
            let ended: WatchResponse = parse_stream_line(line.as_bytes()).unwrap();
            let why = ended.check_open().unwrap_err().into_message().0;
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn malformed_responses_are_errors() {
        for garbled in ["", "{}", "null", "[]", r#"{"header":{"revision":7}}"#, r#"{"header":{"revision":"x"}}"#] {
            assert!(parse::<RangeResponse>(garbled.as_bytes()).is_err(), "{garbled}");
        }
        assert!(parse::<KeyValue>(br#"{"key":"not base64!"}"#).is_err());
        for line in ["{}", r#"{"error":{"grpc_code":14,"message":"etcdserver: no leader"}}"#, r#"{"error":"x"}"#] {
            assert!(parse_stream_line::<WatchResponse>(line.as_bytes()).is_err(), "{line}");
        }
    }
}
