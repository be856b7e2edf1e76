//! HTTP/1.0 and 1.1 as a forward proxy sees them (RFC 9110, RFC 9112): heads, chunk lines and trailers; bodies are
//! only measured, never looked at.
//!
//! The one idea: a message is either read in exactly one way or refused, and what we write is always ours: no byte of
//! framing is copied through. HTTP/2 and caching are left out.

pub mod auth;
pub mod chunked;
pub mod connect;
pub mod forward;
pub mod head;
pub mod rewrite;

pub use head::{BodyFraming, Headers, RequestHead, RequestTarget, ResponseHead, Scheme, Version};
