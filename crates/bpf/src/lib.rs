//! What ekiden puts into the kernel: congestion controls (struct_ops) and queue management (tc).
//!
//! The C under `src/bpf/` is compiled when this crate is built and carried in it; where it runs, neither clang nor
//! headers are needed, only a kernel with BTF.

pub mod aqm;
mod chatter;
pub mod congestion;
pub mod kernel;
mod link;
