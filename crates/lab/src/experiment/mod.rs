//! Experiments: factors, treatments, repetitions, and the published figures to compare with.
//!
//! [`read`] makes an experiment out of a [`mod@file`], [`plan`] determines the order of its runs, [`run`] makes one of
//! them in a lab of its own, [`campaign`] all of them into a [`store`], [`analyse`] and [`expect`] produce the results.

pub mod accuracy;
pub mod analyse;
pub mod arrivals;
pub mod blocks;
pub mod builtin;
pub mod campaign;
pub mod choices;
pub mod cpu;
pub mod demo;
pub mod drawn;
pub mod expect;
pub mod factor;
pub mod fairness;
pub mod file;
pub mod floor;
pub mod flows;
pub mod gain;
pub mod group;
pub mod jobs;
pub mod limit;
pub mod manifest;
pub mod metric;
pub mod named;
pub mod overrides;
pub mod packets;
pub mod plan;
pub mod predict;
pub mod progress;
pub mod read;
pub mod regret;
pub mod results;
pub mod run;
pub mod schedule;
pub mod sequence;
pub mod share;
pub mod short;
pub mod store;
pub mod stream;
pub mod task;
pub mod transfer;
pub mod treatment;

#[cfg(test)]
mod examples_for_tests;
