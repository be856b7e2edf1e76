//! The relay's own responses: short pages with the cause of the failure, as text and, in `Proxy-Status` (RFC 9209), for
//! programs.

use ekiden_proto::wire::http::{Headers, rewrite};

use crate::dial::DialError;
use crate::ingress::responder::send_and_close;
use crate::pump::Endpoint;

/// The name of the relay in `Via` and `Proxy-Status`.
pub const NAME: &str = "ekiden";

/// The page for users who open the relay's address in a browser.
pub const NOT_A_SERVER: &str = "This is ekiden, a proxy. Set it as the HTTP or SOCKS proxy of your program.";

/// Sends a response of the relay, and closes the connection.
pub async fn send_error(client: Endpoint<'_>, status: u16, reason: &str) {
    send_and_close(client, &page(status, reason, reason)).await;
}

/// Returns the response to a failed dial. `names_hops` says whether the client may learn the names of hops.
pub fn dial_error_response(error: &DialError, names_hops: bool) -> Vec<u8> {
    let (cause, sentence) = (error.cause_for_client(), error.message(names_hops));
    let mut headers = plain_text(&sentence);
    let details = error.hop.as_ref().map(|_| format!("; details={}", quoted(&sentence))).unwrap_or_default();
    headers.push("Proxy-Status", format!("{NAME}; error={}{details}", cause.proxy_status()));
    if let Some(wait) = error.retry_after {
        headers.push("Retry-After", wait.as_secs().to_string());
    }
    let status = cause.http_status();
    let reason = match status {
        403 => "Forbidden",
        429 => "Too Many Requests",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Bad Gateway",
    };
    with_body(status, reason, &headers, &sentence)
}

/// Formats a String of a structured field (RFC 8941, 3.3.3). Characters outside printable ASCII become `?`.
fn quoted(text: &str) -> String {
    let escaped = text.chars().fold(String::new(), |mut escaped, char| {
        if matches!(char, '"' | '\\') {
            escaped.push('\\');
        }
        escaped.push(if matches!(char, ' '..='~') { char } else { '?' });
        escaped
    });
    format!("\"{escaped}\"")
}

/// Returns the head of a response, as the response to HEAD (RFC 9110, 9.3.2).
pub fn head_only(response: &[u8]) -> &[u8] {
    let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").map_or(response.len(), |at| at + 4);
    &response[..end]
}

/// Returns a response with one sentence as its body.
pub fn page(status: u16, reason: &str, sentence: &str) -> Vec<u8> {
    with_body(status, reason, &plain_text(sentence), sentence)
}

/// Returns the response that requests user name and password (RFC 9110, 11.7).
pub fn challenge() -> Vec<u8> {
    let sentence = "This relay requires a user name and a password.";
    let mut headers = plain_text(sentence);
    headers.push("Proxy-Authenticate", r#"Basic realm="ekiden", charset="UTF-8""#);
    with_body(407, "Proxy Authentication Required", &headers, sentence)
}

/// Returns the response for a password that could not be checked (RFC 9110, 15.6.4). The status is not 407, on which
/// browsers ask the user for another password.
pub fn overloaded() -> Vec<u8> {
    let sentence = "This relay has too many passwords to check; try again.";
    let mut headers = plain_text(sentence);
    headers.push("Retry-After", "1".to_owned());
    with_body(503, "Service Unavailable", &headers, sentence)
}

fn plain_text(sentence: &str) -> Headers {
    let mut headers = Headers::new();
    headers.push("Content-Type", "text/plain; charset=utf-8");
    headers.push("Content-Length", (sentence.len() + 1).to_string());
    headers.push("Cache-Control", "no-store");
    headers.push("Connection", "close");
    headers
}

fn with_body(status: u16, reason: &str, headers: &Headers, sentence: &str) -> Vec<u8> {
    let mut response = rewrite::write_response(status, reason, headers);
    response.extend_from_slice(sentence.as_bytes());
    response.push(b'\n');
    response
}
