//! Sections whose TCP is tuned as they go on: looked at now and then while bytes move, given what
//! [`ekiden_proto::tuning`] decides (docs/tuning.md).
//!
//! A [`Tuner`] belongs to one section of a session, whose meter tells it that bytes move. Its thread's [`TuneScheduler`] then
//! look at it ten times a second. Who moves nothing costs nothing. What a profile says itself is left alone, and what
//! the kernel refuses is not asked for again.

mod scheduler;
mod tuner;

pub use scheduler::TuneScheduler;
pub use tuner::Tuner;
pub use tuner::TuningView;
