//! Hitless upgrades: a running relay starts its program anew, which may be another version by now, and hands over its
//! listening sockets.
//!
//! ```text
//! the process before                       the new process
//! starts its program by its path ────────► begins, detached from it
//! ◄──────────────────────────────────────  here: pid, version
//! sockets, queues, devices ──────────────► reads its configuration, takes them, binds what is missing,
//! ◄──────────────────────────────────────  serves; or failed: why
//! leaves the fleet's thread, tells the
//! manager whose turn it is
//! go ────────────────────────────────────► joins the fleet, answers `ekiden status`
//! accepts nothing more, sessions finish
//! ```
//!
//! The very same sockets go over (unix(7), `SCM_RIGHTS`), and are open in one of the two at every moment. Of several that
//! share an address (`SO_REUSEPORT`, socket(7)) closing one resets what waits in its queue, so none may ever be left out.
//! Until `go` the process before has given up nothing, and goes on if the new one does not get there.

mod message;
mod predecessor;
mod request;
mod successor;

pub use crate::status::{UpgradeAttempts, UpgradeView};
pub use message::{Inheritance, Inherited};
pub use predecessor::{Predecessor, UpgradeCall};
pub use request::{RequestError, request};
pub use successor::{Failure, Successor, UpgradeError};

/// Environment variable of the new process: the pid of the old one, so that no other process takes the variable for its
/// own.
const VARIABLE: &str = "EKIDEN_UPGRADE";
