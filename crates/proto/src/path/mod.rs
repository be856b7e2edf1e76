//! Which path to take: what a section is like, what a path of sections will carry, and which of several to choose.
//!
//! Nothing here asks for the time: whoever calls says what time it is, as a [`std::time::Duration`] since an origin of its
//! own. Rates are bytes per second, sizes bytes.

pub mod bounded;
pub mod candidates;
pub mod choice;
pub mod estimate;
mod experience;
pub mod figures;
pub mod hours;
mod hysteresis;
mod known;
pub mod likely;
pub mod map;
pub mod model;
pub mod plan;
pub mod prefix;
mod ranking;
pub mod reading;
pub mod select;
pub mod trust;
