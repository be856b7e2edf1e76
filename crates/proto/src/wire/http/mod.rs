//! HTTP/1.0 and 1.1 for a forward proxy (RFC 9110, RFC 9112): heads, chunk lines and trailers; of bodies only the
//! length matters.
//!
//! A message is either read in exactly one way or refused, and the relay writes all framing itself: no byte of framing
//! is copied through. HTTP/2 and caching are left out.

pub mod auth;
pub mod chunked;
pub mod connect;
pub mod forward;
pub mod head;
pub mod rewrite;

pub use head::{BodyFraming, Headers, RequestHead, RequestTarget, ResponseHead, Scheme, Version};
