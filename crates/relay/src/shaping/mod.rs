//! Shaping of sections: fair shares of an interface's rate, and tuning of socket options. Moves no bytes; the decisions are in
//! [`ekiden_proto::share`] and [`ekiden_proto::tuning`].

pub mod autotune;
pub mod fair_share;
