//! Translation of message heads between HTTP/2 and HTTP/1.1 (RFC 9113, 8; RFC 9112).

use ekiden_proto::wire::http::{Headers, ResponseHead, rewrite};
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode, Uri};

/// Connection-specific fields of HTTP/1.1 (RFC 9113, 8.2.2). The fields that `Connection` names have already been
/// removed from messages of servers.
const CONNECTION_SPECIFIC: [&str; 5] = ["Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade"];

/// A request in HTTP/1.1.
pub struct Http1Request {
    /// The head, ready to be written.
    pub head: Vec<u8>,
    /// Whether the body is in chunks.
    pub is_chunked: bool,
}

impl Http1Request {
    /// Translates a head. `has_body` says whether the stream continues after the head.
    pub fn new(parts: Parts, has_body: bool) -> Self {
        let Parts { method, uri, headers: fields, .. } = parts;
        let mut headers = Headers::new();
        // "A proxy [...] MUST generate Host from :authority" if the Host field differs (RFC 9113, 8.3.1).
        let authority = uri.authority().map(|authority| authority.as_str().as_bytes());
        if let Some(host) = authority.or_else(|| fields.get("host").map(AsRef::as_ref)) {
            headers.push("Host", host);
        }
        append_fields(&mut headers, &fields);
        // `h2` checks Content-Length against the frames (RFC 9113, 8.1.1), so a body with a length needs no chunks.
        let is_chunked = has_body && method != Method::CONNECT && headers.get("Content-Length").is_none();
        if is_chunked {
            headers.push("Transfer-Encoding", "chunked");
        }
        // The session serves one request only.
        headers.push("Connection", "close");
        let head = rewrite::write_request(method.as_str(), &request_target(&method, &uri), &headers);
        Self { head, is_chunked }
    }
}

/// Appends all fields of a request except `Host`. Cookie fields, which a client may split, become one field (RFC 9113,
/// 8.2.3).
fn append_fields(headers: &mut Headers, fields: &HeaderMap) {
    for (name, value) in fields.iter().filter(|(name, _)| !matches!(name.as_str(), "host" | "cookie")) {
        headers.push(name.as_str(), value.as_bytes());
    }
    let cookies: Vec<&[u8]> = fields.get_all("cookie").iter().map(AsRef::as_ref).collect();
    if !cookies.is_empty() {
        headers.push("cookie", cookies.join(&b"; "[..]));
    }
}

/// Returns the target of the request line. A request with `https` can only be for the relay itself.
fn request_target(method: &Method, uri: &Uri) -> String {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    match (uri.scheme_str(), uri.authority()) {
        (_, Some(authority)) if method == Method::CONNECT => authority.to_string(),
        (Some("https") | None, _) | (_, None) => path.to_owned(),
        // OPTIONS of a whole server has no path in absolute form (RFC 9112, 3.2.4).
        (Some(scheme), Some(authority)) => {
            format!("{scheme}://{authority}{}", if path == "*" { "" } else { path })
        }
    }
}

/// Translates the head of a response. `None` if HTTP/2 cannot carry it.
pub fn response(head: ResponseHead) -> Option<Response<()>> {
    let ResponseHead { status, mut headers, .. } = head;
    CONNECTION_SPECIFIC.iter().for_each(|name| headers.remove(name));
    let mut response = Response::builder().status(status);
    for (name, value) in headers.iter() {
        response = response.header(name, value);
    }
    response.body(()).ok()
}

/// Returns the size of a response's fields in bytes, as counted by `SETTINGS_MAX_HEADER_LIST_SIZE` (RFC 9113, 6.5.2):
/// each field has an overhead of 32 bytes.
pub fn header_list_size(response: &Response<()>) -> usize {
    let status = ":status".len() + 3 + 32;
    status + response.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum::<usize>()
}

/// Returns the head of a response of this relay whose body is `sentence`.
pub fn page(status: StatusCode, sentence: &str) -> Response<()> {
    let response = Response::builder().status(status).header("content-type", "text/plain; charset=utf-8");
    let response = response.header("content-length", sentence.len()).header("cache-control", "no-store");
    response.header("retry-after", "1").body(()).expect("invariant: fields of our own")
}
