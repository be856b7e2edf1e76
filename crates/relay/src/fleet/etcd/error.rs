//! Errors of etcd: the cause, whether a new attempt can help, and the operator's remedy.

use hyper::StatusCode;
use serde_json::Value;

use crate::fleet::EtcdErrorMessage;

/// The gRPC status of a compacted revision.
const OUT_OF_RANGE: i64 = 11;

/// The gRPC status for a full store (`RESOURCE_EXHAUSTED`).
const RESOURCE_EXHAUSTED: i64 = 8;

/// Why a request has no usable response.
#[derive(Debug)]
pub enum EtcdError {
    /// The response would be too large.
    TooLarge,
    /// The server rejects the request.
    Rejected(EtcdErrorMessage),
    /// The server is down or does not answer.
    Unavailable(EtcdErrorMessage),
}

impl EtcdError {
    /// Returns an `Unavailable` error with this reason.
    pub fn unavailable(reason: impl ToString) -> Self {
        Self::Unavailable(EtcdErrorMessage(reason.to_string()))
    }

    /// Converts the error into the message for the operator.
    pub fn into_message(self) -> EtcdErrorMessage {
        match self {
            Self::TooLarge => EtcdErrorMessage(
                "the entries under the prefix are too large: remove entries of other programs".to_owned(),
            ),
            Self::Rejected(message) | Self::Unavailable(message) => message,
        }
    }

    /// Returns the error of a response with this HTTP status and body.
    pub fn from_response(status: StatusCode, body: &[u8]) -> Self {
        serde_json::from_slice(body).ok().as_ref().and_then(Self::from_gateway).unwrap_or_else(|| {
            Self::unavailable(format!("HTTP status {status}: the fleet needs etcd 3.4 or newer with its JSON gateway"))
        })
    }

    /// Returns the error that the gateway reports in this object; `None` if the object is no error.
    pub fn from_gateway(error: &Value) -> Option<Self> {
        // In a stream, etcd before 3.6 calls the field `grpc_code`.
        let code = error.get("code").or_else(|| error.get("grpc_code"))?.as_i64()?;
        let message = error.get("message")?.as_str()?;
        let remedy = remedy(code, message).map_or(String::new(), |remedy| format!("; {remedy}"));
        let full_message = EtcdErrorMessage(format!("{message}{remedy}"));
        Some(match code {
            // Permission and argument errors would recur on an immediate retry.
            3 | 7 | 8 | 9 | 16 => Self::Rejected(full_message),
            _ => Self::Unavailable(full_message),
        })
    }
}

/// Returns the operator's remedy for known errors.
fn remedy(code: i64, message: &str) -> Option<&'static str> {
    [
        (RESOURCE_EXHAUSTED, "space", "etcd is full: compact, defragment, and disarm its alarm (etcdctl alarm disarm)"),
        (OUT_OF_RANGE, "compacted", "all entries are read again"),
        (3, "user name is empty", "set user and password_file in [fleet], then reload (SIGHUP)"),
        (3, "authentication failed", "correct user and password_file in [fleet], then reload (SIGHUP)"),
        (9, "not enabled", "etcd has no users: remove user and password_file from [fleet], then reload (SIGHUP)"),
        (7, "permission denied", "permit the user to read and write under the prefix (etcdctl role grant-permission)"),
    ]
    .into_iter()
    .find_map(|(error_code, phrase, remedy)| (error_code == code && message.contains(phrase)).then_some(remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify(status: u16, body: &str) -> (&'static str, String) {
        match EtcdError::from_response(StatusCode::from_u16(status).unwrap(), body.as_bytes()) {
            EtcdError::TooLarge => ("too large", String::new()),
            EtcdError::Rejected(trouble) => ("rejected", trouble.0),
            EtcdError::Unavailable(trouble) => ("unavailable", trouble.0),
        }
    }

    #[test]
    fn gateway_errors_are_classified_and_name_a_remedy() {
        for (status, body, class, words) in [
            (
                412,
                r#"{"code":9,"message":"etcdserver: authentication is not enabled"}"#,
                "rejected",
                "etcd has no users",
            ),
            (400, r#"{"code":3,"message":"etcdserver: user name is empty"}"#, "rejected", "set user and password_file"),
            (403, r#"{"code":7,"message":"etcdserver: permission denied"}"#, "rejected", "etcdctl role"),
            (429, r#"{"code":8,"message":"etcdserver: mvcc: database space exceeded"}"#, "rejected", "etcd is full"),
            (401, r#"{"code":16,"message":"etcdserver: invalid auth token"}"#, "rejected", "invalid auth token"),
            (
                400,
                r#"{"code":11,"message":"etcdserver: mvcc: required revision has been compacted"}"#,
                "unavailable",
                "read again",
            ),
            (503, r#"{"grpc_code":14,"http_code":503,"message":"no leader"}"#, "unavailable", "no leader"),
            (404, "404 page not found", "unavailable", "etcd 3.4 or newer"),
            (502, "{}", "unavailable", "HTTP status 502"),
        ] {
            let (actual_class, message) = classify(status, body);
            assert!(actual_class == class && message.contains(words), "{body}: {actual_class}: {message}");
        }
    }
}
