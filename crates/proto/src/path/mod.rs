//! Which path to take: what a section is like, what a path of sections will carry, and which of several to choose.
//!
//! Nothing here asks for the time: whoever calls says what time it is, as a [`std::time::Duration`] since an origin of its
//! own. Rates are bytes per second, sizes bytes.

pub mod bounded;
pub mod candidates;
pub mod choice;
mod experience;
mod hysteresis;
mod known;
pub mod likely;
pub mod map;
pub mod model;
pub mod estimate;
pub mod reading;
pub mod prefix;
mod ranking;
pub mod select;
pub mod trust;
pub mod plan;
