//! Congestion controls as BPF struct_ops: the catalogue, loading, ownership, the telemetry and options of a
//! connection, and requests for Careful Resume.
//!
//! The kernel has one list of congestion controls for all network namespaces, by name; those of ekiden are on it under
//! their plain names (docs/decisions/0016).

mod catalogue;
mod error;
mod object;
mod pins;
mod presence;
mod registration;
mod resume;
mod telemetry;

pub use catalogue::{Algorithm, CATALOGUE, about, find};
pub use error::CongestionError;
pub use object::{RegistrationMethod, check_support};
pub use pins::{PIN_ROOT, is_mounted, pinned_names};
pub use presence::{CongestionControl, LoadedBy, list, lookup};
pub use registration::{PinOutcome, RegistrationGuard, UnloadOutcome, acquire, pin, unload};
pub use resume::{ResumeError, ResumeMap, ResumePhase, ResumeRejection, ResumeRequest, ResumeState};
pub use telemetry::{SectionTelemetry, TelemetryMap};

pub use libbpf_rs::ErrorKind;
