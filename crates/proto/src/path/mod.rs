//! Path selection: the estimate of a section, the model of a path of sections, and the choice among paths.
//!
//! Nothing here reads a clock: the caller passes the time, as a [`std::time::Duration`] since an origin of its own.
//! Rates are bytes per second, sizes bytes.

pub mod bounded;
pub mod candidates;
pub mod choice;
pub mod estimate;
mod experience;
pub mod figures;
pub mod hours;
mod hysteresis;
pub mod map;
mod map_entry;
pub mod model;
pub mod plan;
pub mod prefix;
mod ranking;
pub mod reading;
pub mod select;
pub mod transfer_size;
pub mod trust;
mod visits;
