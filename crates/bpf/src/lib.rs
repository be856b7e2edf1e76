//! BPF programs of ekiden: congestion controls (struct_ops) and queue management (tc).
//!
//! The C under `src/bpf/` is compiled when this crate is built and carried in it; at run time neither clang nor headers
//! are needed, only a kernel with BTF.

pub mod aqm;
pub mod congestion;
pub mod kernel;
mod link;
mod messages;
