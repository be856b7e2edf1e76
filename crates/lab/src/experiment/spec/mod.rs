//! The experiment file: factors, treatments, workload and expectations, read and validated. Runs nothing.

pub mod builtin;
pub mod drawn;
pub mod factor;
pub mod file;
pub mod group;
pub mod overrides;
pub mod read;
pub mod treatment;
