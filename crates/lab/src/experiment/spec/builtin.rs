//! The experiments that come with the laboratory.

use std::path::Path;

use anyhow::Context as _;

use crate::topology::file::traces;

/// Name and text of every built-in experiment.
pub const BUILT_IN_EXPERIMENTS: [(&str, &str); 30] = [
    ("ctcp-oracles", include_str!("../../../experiments/ctcp-oracles.toml")),
    ("demo", include_str!("../../../experiments/demo.toml")),
    ("fit2013-history", include_str!("../../../experiments/fit2013-history.toml")),
    ("fit2013-many", include_str!("../../../experiments/fit2013-many.toml")),
    ("fit2013-pairs", include_str!("../../../experiments/fit2013-pairs.toml")),
    ("fit2013-stacks", include_str!("../../../experiments/fit2013-stacks.toml")),
    ("hasegawa-download", include_str!("../../../experiments/hasegawa-download.toml")),
    ("hasegawa-tables", include_str!("../../../experiments/hasegawa-tables.toml")),
    ("lan-loss", include_str!("../../../experiments/lan-loss.toml")),
    ("limiting-factor", include_str!("../../../experiments/limiting-factor.toml")),
    ("lone-write", include_str!("../../../experiments/lone-write.toml")),
    ("longhaul-line", include_str!("../../../experiments/longhaul-line.toml")),
    ("masuya2014-choice", include_str!("../../../experiments/masuya2014-choice.toml")),
    ("masuya2014-internet", include_str!("../../../experiments/masuya2014-internet.toml")),
    ("masuya2014-position", include_str!("../../../experiments/masuya2014-position.toml")),
    ("masuya2014-sections", include_str!("../../../experiments/masuya2014-sections.toml")),
    ("nakagawa-blocks", include_str!("../../../experiments/nakagawa-blocks.toml")),
    ("nakagawa-rto", include_str!("../../../experiments/nakagawa-rto.toml")),
    ("nakagawa-rto-both", include_str!("../../../experiments/nakagawa-rto-both.toml")),
    ("nakagawa-sequence", include_str!("../../../experiments/nakagawa-sequence.toml")),
    ("path-change", include_str!("../../../experiments/path-change.toml")),
    ("path-model", include_str!("../../../experiments/path-model.toml")),
    ("path-regret", include_str!("../../../experiments/path-regret.toml")),
    ("section-chains", include_str!("../../../experiments/section-chains.toml")),
    ("tunnel-flows", include_str!("../../../experiments/tunnel-flows.toml")),
    ("tunnel-tuning", include_str!("../../../experiments/tunnel-tuning.toml")),
    ("warm", include_str!("../../../experiments/warm.toml")),
    ("warm-beside", include_str!("../../../experiments/warm-beside.toml")),
    ("warm-change", include_str!("../../../experiments/warm-change.toml")),
    ("warm-resume", include_str!("../../../experiments/warm-resume.toml")),
];

/// Returns the name and the text of a built-in experiment or of an experiment file.
///
/// # Errors
/// `name` is neither a built-in experiment nor a readable file, or a trace that the file names cannot be read.
pub fn find_experiment(name: &str) -> anyhow::Result<(String, String)> {
    if let Some((name, text)) = BUILT_IN_EXPERIMENTS.iter().find(|(own, _)| *own == name) {
        return Ok(((*name).into(), (*text).into()));
    }
    let path = Path::new(name);
    let text = std::fs::read_to_string(path).map_err(|error| {
        let names = BUILT_IN_EXPERIMENTS.map(|(name, _)| name).join(", ");
        anyhow::anyhow!("{name}: {error}; built-in experiments are {names}")
    })?;
    let text = traces::inline_traces(text, path.parent().unwrap_or(Path::new(""))).with_context(|| name.to_owned())?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok((stem, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::spec::read::Experiment;

    #[test]
    fn built_in_experiments_parse_and_have_runs_in_both_sizes() {
        for (name, text) in BUILT_IN_EXPERIMENTS {
            let experiment = Experiment::parse(name, text).unwrap_or_else(|mistakes| panic!("{name}: {mistakes:#?}"));
            assert!(experiment.selected_cells(false).count() > 1, "{name}: quick");
            assert!(
                experiment.selected_cells(true).count() >= experiment.selected_cells(false).count(),
                "{name}: full"
            );
        }
    }

    #[test]
    fn unknown_experiment_error_lists_the_built_in_names() {
        let error = find_experiment("no-such").unwrap_err().to_string();
        assert!(error.contains("masuya2014-position"), "{error}");
    }
}
