//! HTTP responses: the files of the dashboard, which are part of the binary, and security headers.

use http_body_util::{Either, Full};
use hyper::body::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{Response, StatusCode};

use super::stream::SnapshotReader;

/// A response with a complete body or a stream.
pub(super) type AdminResponse = Response<Either<Full<Bytes>, SnapshotReader>>;

macro_rules! files {
    ($($path:literal: $kind:literal = $file:literal;)+) => {
        /// The content type and the text of a file of the dashboard.
        pub(super) fn file(path: &str) -> Option<(&'static str, &'static str)> {
            Some(match path {
                $($path => ($kind, include_str!(concat!("../../dashboard/", $file))),)+
                _ => return None,
            })
        }
    };
}
files! {
    "/": "text/html; charset=utf-8" = "index.html";
    "/style.css": "text/css; charset=utf-8" = "style.css";
    "/app.js": "text/javascript; charset=utf-8" = "app.js";
    "/detail.js": "text/javascript; charset=utf-8" = "detail.js";
    "/feed.js": "text/javascript; charset=utf-8" = "feed.js";
    "/plot.js": "text/javascript; charset=utf-8" = "plot.js";
    "/diagram.js": "text/javascript; charset=utf-8" = "diagram.js";
    "/sessions.js": "text/javascript; charset=utf-8" = "sessions.js";
    "/tables.js": "text/javascript; charset=utf-8" = "tables.js";
    "/words.js": "text/javascript; charset=utf-8" = "words.js";
    "/icon.svg": "image/svg+xml" = "icon.svg";
}

/// Headers of every response: only resources of this origin, no frames, no caching, no sniffing of content types, no
/// referrer.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (CACHE_CONTROL, "no-store"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Creates a response with a complete body.
pub(super) fn full_response(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> AdminResponse {
    with_headers(status, kind, Either::Left(Full::new(body.into())))
}

/// Creates a response with a stream of server-sent events (HTML, section 9.2).
pub(super) fn stream_response(reader: SnapshotReader) -> AdminResponse {
    with_headers(StatusCode::OK, "text/event-stream", Either::Right(reader))
}

fn with_headers(status: StatusCode, kind: &'static str, body: Either<Full<Bytes>, SnapshotReader>) -> AdminResponse {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
