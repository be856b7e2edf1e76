//! Judgement of results: analysis, expectations, and comparison with models and arithmetic limits. Nothing is run here.

pub mod accuracy;
pub mod analyse;
pub mod compare;
pub mod expect;
pub mod figures;
pub mod floor;
pub mod gain;
pub mod limit;
pub mod predict;
pub mod published;
pub mod regret;
