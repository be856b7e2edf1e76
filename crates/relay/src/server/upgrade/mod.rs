//! Hitless upgrades: a running relay starts its program again, possibly in a newer version, and hands over its
//! listening sockets to the new process.
//!
//! ```text
//! old process                              new process
//! starts its program by its path ────────► starts, as an orphan
//! ◄──────────────────────────────────────  here: pid, version
//! sockets, queues, devices ──────────────► reads its configuration, adopts them, binds missing ones,
//! ◄──────────────────────────────────────  serves; or failed: why
//! stops its fleet thread, notifies the
//! service manager of the new main pid
//! go ────────────────────────────────────► joins the fleet, answers `ekiden status`
//! accepts no more, sessions finish
//! ```
//!
//! The sockets themselves are passed (unix(7), `SCM_RIGHTS`), and are open in at least one of the two processes at
//! every moment. If one of several sockets with the same address (`SO_REUSEPORT`, socket(7)) is closed, the connections
//! in its queue are reset, so all of them must be handed over. Until `go`, the old process has given up nothing, and
//! continues to serve if the new process fails.

mod message;
mod predecessor;
mod request;
mod successor;

pub use crate::status::{UpgradeAttempts, UpgradeView};
pub use message::{Inheritance, Inherited};
pub use predecessor::{Predecessor, UpgradeCall};
pub use request::{RequestError, request};
pub use successor::{Failure, Successor, UpgradeError};

/// Environment variable of the new process: the pid of the old process. A process with another parent ignores the
/// variable.
const VARIABLE: &str = "EKIDEN_UPGRADE";
