//! Shaping of sections: fair shares of an interface's rate, tuning of socket options, and the initial window of a
//! session. Transfers no bytes; the decisions are in [`ekiden_proto::share`], [`ekiden_proto::tuning`] and
//! [`ekiden_proto::resume`].

pub mod autotune;
pub mod fair_share;
pub mod resume;
