//! Experiments: factors, treatments, repetitions, and the published figures to compare with.
//!
//! [`spec`] reads the file of an experiment, [`run`] makes its runs, each in a lab of its own, [`collect`] gathers and stores
//! their data, and [`judge`] compares the results with expectations and published figures.

pub mod collect;
pub mod judge;
pub mod run;
pub mod spec;

#[cfg(test)]
mod examples_for_tests;
