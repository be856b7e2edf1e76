//! Which path to take: what a section is like, what a path of sections will carry, and which of several to choose.
//!
//! Nothing here asks for the time: whoever calls says what time it is, as a [`std::time::Duration`] since an origin of its
//! own. Rates are bytes per second, sizes bytes.

pub mod model;
pub mod estimate;
pub mod reading;
