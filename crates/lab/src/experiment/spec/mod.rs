//! The experiment file: reads and validates factors, treatments, workload and expectations. Nothing is run here.

pub mod builtin;
pub mod drawn;
pub mod factor;
pub mod file;
pub mod group;
pub mod overrides;
pub mod read;
pub mod treatment;
