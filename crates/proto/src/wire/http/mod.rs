//! HTTP/1.0 and 1.1 for a forward proxy (RFC 9110, RFC 9112): heads, chunk lines and trailers. Of a body only the
//! length is parsed.
//!
//! A message is either read in exactly one way or refused. The relay writes all framing itself and copies no byte of
//! the received framing. HTTP/2 and caching are not supported.

pub mod auth;
pub mod chunked;
pub mod connect;
pub mod forward;
pub mod head;
pub mod rewrite;

pub use head::{BodyFraming, Headers, RequestHead, RequestTarget, ResponseHead, Scheme, Version};
