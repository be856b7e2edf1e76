//! Rewrites the heads of requests and responses.

use ekiden_proto::addr::Target;
use ekiden_proto::wire::http::{
    BodyFraming, Headers, RequestHead, RequestTarget, ResponseHead, Scheme, Version, rewrite,
};

use super::body::BodyCoding;
use super::{is_persistent, responses, upstream};
use crate::path::PathChoice;
use crate::session::Session;

/// Safe methods, whose requests may be repeated (RFC 9110, 9.2.1).
const SAFE_METHODS: [&str; 4] = ["GET", "HEAD", "OPTIONS", "TRACE"];

/// A request as sent to the server.
pub struct OutgoingRequest {
    /// The target of the request.
    pub target: Target,
    /// The head, ready to be written. Empty after it has been moved to a connection that is the last attempt.
    pub head: Vec<u8>,
    /// The body of the request.
    pub body: BodyFraming,
    /// The HTTP version of the client.
    pub version: Version,
    /// The protocols that the client offers to switch to.
    pub upgrade: Option<String>,
    /// Whether the request may be sent again if a connection turns out to be dead.
    pub repeatable: bool,
    /// The `http` hop that receives the request; `None` if the request goes to the server itself.
    pub hop: Option<Box<str>>,
    keep_alive: bool,
    /// Whether the client's credentials authenticate the server's whole connection.
    has_connection_auth: bool,
}

/// A response as sent to the client.
pub struct OutgoingResponse {
    /// The head, ready to be written.
    pub head: Vec<u8>,
    /// The body of the response, as the server sends it.
    pub body: BodyFraming,
    /// The framing of the body toward the client.
    pub framing: BodyFraming,
    /// The form in which the client receives the data of chunks.
    pub coding: BodyCoding,
    /// Whether client and server switch to another protocol after this response.
    pub upgraded: bool,
    /// Whether the server's connection can carry another request.
    pub server_keep_alive: bool,
    /// Whether the client's connection can carry another request.
    pub client_keep_alive: bool,
}

/// Rewrites a request in absolute form for the next hop or the server.
pub fn rewrite_request(session: &Session, path_choice: &PathChoice, head: Box<RequestHead>) -> OutgoingRequest {
    let keep_alive = is_persistent(session, &head);
    let RequestHead { method, target: form, version, mut headers, body } = *head;
    let RequestTarget::Absolute { scheme, userinfo, target, authority_text, path_and_query } = form else {
        unreachable!("invariant: only requests in absolute form are forwarded")
    };
    let has_connection_auth = authenticates_connection(&headers, "Authorization");
    let upgrade = if version == Version::Http11 { rewrite::upgrade_protocols(&headers) } else { None };
    rewrite::strip_hop_by_hop(&mut headers);
    rewrite::set_host(&mut headers, &authority_text);
    rewrite::add_via(&mut headers, version, responses::NAME);
    rewrite::set_framing(&mut headers, body);
    if let Some(protocols) = &upgrade {
        headers.push("Connection", "upgrade");
        headers.push("Upgrade", protocols.as_str());
    }
    let scheme = scheme_word(scheme);
    let user = userinfo.map(|userinfo| format!("{userinfo}@")).unwrap_or_default();
    let origin = format!("{scheme}://{user}{authority_text}");
    let hop = path_choice.path.http_hop();
    let line_target = upstream::request_target(hop.map(AsRef::as_ref), &origin, &path_and_query, &mut headers);
    OutgoingRequest {
        target,
        head: rewrite::write_request(&method, &line_target, &headers),
        repeatable: SAFE_METHODS.contains(&method.as_str()) && body == BodyFraming::Empty && upgrade.is_none(),
        hop: hop.map(|hop| hop.name.clone()),
        body,
        version,
        upgrade,
        keep_alive,
        has_connection_auth,
    }
}

const fn scheme_word(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Ftp => "ftp",
        Scheme::Http | Scheme::Https => "http",
    }
}

/// Returns the URL for the log: scheme, host and path, without user and query.
pub fn log_url(head: &RequestHead) -> String {
    let RequestTarget::Absolute { scheme, authority_text, path_and_query, .. } = &head.target else {
        unreachable!("invariant: only requests in absolute form are forwarded")
    };
    let path = path_and_query.split('?').next().unwrap_or_default();
    format!("{}://{authority_text}{path}", scheme_word(*scheme))
}

/// Decrements `Max-Forwards` of OPTIONS and TRACE (RFC 9110, 7.6.2). Returns false if the value is already 0, so that
/// this relay must answer the request.
pub fn decrement_max_forwards(head: &mut RequestHead) -> bool {
    if !matches!(head.method.as_str(), "OPTIONS" | "TRACE") {
        return true;
    }
    let remaining =
        head.headers.get("Max-Forwards").and_then(|value| std::str::from_utf8(value).ok()?.parse::<u64>().ok());
    match remaining {
        None => true,
        Some(0) => false,
        Some(remaining) => {
            head.headers.set("Max-Forwards", (remaining - 1).to_string());
            true
        }
    }
}

/// Whether `field` contains a scheme that authenticates the connection and not the request, such as NTLM and Negotiate
/// (RFC 4559). No other client may use such a connection afterwards.
fn authenticates_connection(headers: &Headers, field: &str) -> bool {
    let is_connection_scheme =
        |scheme: &[u8]| scheme.eq_ignore_ascii_case(b"NTLM") || scheme.eq_ignore_ascii_case(b"Negotiate");
    headers.list(field).any(|value| is_connection_scheme(value.split(|byte| *byte == b' ').next().unwrap_or_default()))
}

/// Rewrites the response for the client. `is_reusable` states whether the client's connection may carry another request:
/// not after a response to an incomplete request (RFC 9112, 9.6), and not while the relay drains.
pub fn rewrite_response(outgoing: &OutgoingRequest, head: ResponseHead, is_reusable: bool) -> OutgoingResponse {
    let shared = !outgoing.has_connection_auth && !authenticates_connection(&head.headers, "WWW-Authenticate");
    let server_keep_alive =
        shared && rewrite::is_keep_alive(head.version, &head.headers) && head.body != BodyFraming::UntilClose;
    let ResponseHead { status, reason, version, mut headers, body } = head;
    let upgraded = status == 101;
    let protocol = headers.get("Upgrade").map(<[u8]>::to_vec);
    rewrite::strip_hop_by_hop(&mut headers);
    rewrite::add_via(&mut headers, version, responses::NAME);
    // An HTTP/1.0 client does not support chunks: it receives the bare data, ended by the close of the connection.
    let is_dechunked = body == BodyFraming::Chunked && outgoing.version == Version::Http10;
    let (framing, coding) =
        if is_dechunked { (BodyFraming::UntilClose, BodyCoding::Plain) } else { (body, BodyCoding::Chunks) };
    rewrite::set_framing(&mut headers, framing);
    let client_keep_alive = outgoing.keep_alive && is_reusable && framing != BodyFraming::UntilClose;
    if upgraded {
        headers.push("Connection", "upgrade");
        headers.push("Upgrade", protocol.unwrap_or_default());
    } else if !client_keep_alive {
        headers.push("Connection", "close");
    } else if outgoing.version == Version::Http10 {
        headers.push("Connection", "keep-alive");
    }
    let head = rewrite::write_response(status, &reason, &headers);
    OutgoingResponse { head, body, framing, coding, upgraded, server_keep_alive, client_keep_alive }
}

/// Rewrites an interim response (1xx).
pub fn rewrite_interim(head: ResponseHead) -> Vec<u8> {
    let ResponseHead { status, reason, mut headers, .. } = head;
    rewrite::strip_hop_by_hop(&mut headers);
    rewrite::write_response(status, &reason, &headers)
}
