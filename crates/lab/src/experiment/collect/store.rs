//! The directory with the results of an experiment. Each run is written to disk as soon as it is complete.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::results::{CheckRow, Manifest, Run};

const MANIFEST_FILE: &str = "manifest.json";
const RUNS_FILE: &str = "runs.jsonl";
const CHECKS_FILE: &str = "checks.json";

/// A directory with results, open for appending runs.
#[derive(Debug)]
pub struct ResultStore {
    dir: PathBuf,
    file: File,
    /// The circumstances of the runs.
    pub manifest: Manifest,
    /// The completed runs.
    pub runs: Vec<Run>,
    /// The result of the link check; empty if the links were not checked.
    pub checks: Vec<CheckRow>,
}

impl ResultStore {
    /// Creates a directory for results, or continues the results in `dir` if they have the same digest. With `fresh`,
    /// earlier results are removed.
    ///
    /// # Errors
    /// The existing results are of a different configuration, or a file cannot be read or written.
    pub fn open(dir: &Path, manifest: Manifest, fresh: bool) -> anyhow::Result<Self> {
        if fresh {
            remove_results(dir)?;
        }
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        if !dir.join(MANIFEST_FILE).exists() {
            write_json(&dir.join(MANIFEST_FILE), &manifest)?;
            return Self::create(dir, manifest, Vec::new(), Vec::new());
        }
        let (earlier, runs, checks) = load(dir)?;
        anyhow::ensure!(
            earlier.digest == manifest.digest,
            "{} has results of a different configuration: {}. --fresh removes them, --out DIR keeps both",
            dir.display(),
            describe_difference(&earlier, &manifest)
        );
        let manifest = Manifest { started: earlier.started, blocks: manifest.blocks.max(earlier.blocks), ..manifest };
        write_json(&dir.join(MANIFEST_FILE), &manifest)?;
        Self::create(dir, manifest, runs, checks)
    }

    fn create(dir: &Path, manifest: Manifest, runs: Vec<Run>, checks: Vec<CheckRow>) -> anyhow::Result<Self> {
        // The file is rewritten, because its last line may be incomplete.
        let path = dir.join(RUNS_FILE);
        let lines = runs.iter().map(json_line).collect::<anyhow::Result<String>>()?;
        std::fs::write(&path, lines).with_context(|| path.display().to_string())?;
        let file = OpenOptions::new().append(true).open(&path)?;
        Ok(Self { dir: dir.to_owned(), file, manifest, runs, checks })
    }

    /// Appends a run to the file of runs, and waits until the run is on disk.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append_run(&mut self, run: Run) -> anyhow::Result<()> {
        self.file.write_all(json_line(&run)?.as_bytes())?;
        self.file.sync_data()?;
        self.runs.push(run);
        Ok(())
    }

    /// Saves the result of the link check.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save_checks(&mut self, checks: Vec<CheckRow>) -> anyhow::Result<()> {
        write_json(&self.dir.join(CHECKS_FILE), &checks)?;
        self.checks = checks;
        Ok(())
    }

    /// Returns the directory of the results.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Loads the results in a directory. An incomplete last line in the file of runs is ignored.
///
/// # Errors
/// The directory has no results, or a file cannot be read or parsed.
pub fn load(dir: &Path) -> anyhow::Result<(Manifest, Vec<Run>, Vec<CheckRow>)> {
    let manifest =
        read_json(&dir.join(MANIFEST_FILE)).with_context(|| format!("{} holds no results", dir.display()))?;
    let path = dir.join(RUNS_FILE);
    let text = if path.exists() { std::fs::read_to_string(&path)? } else { String::new() };
    let complete_lines = text.rfind('\n').map_or("", |end| &text[..end]);
    let runs = complete_lines.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    let checks = dir.join(CHECKS_FILE);
    let checks = if checks.exists() { read_json(&checks)? } else { Vec::new() };
    Ok((manifest, runs.with_context(|| path.display().to_string())?, checks))
}

fn remove_results(dir: &Path) -> anyhow::Result<()> {
    for name in [MANIFEST_FILE, RUNS_FILE, CHECKS_FILE] {
        let path = dir.join(name);
        if path.exists() {
            std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// Describes the first difference of two manifests: the experiment, the experiment file, a program, the clock or the
/// kernel.
fn describe_difference(earlier: &Manifest, now: &Manifest) -> String {
    let program = now.programs.iter().find(|program| !earlier.programs.contains(program));
    if earlier.name != now.name {
        format!("experiment {}", earlier.name)
    } else if earlier.file != now.file {
        "the experiment file has changed".into()
    } else if let Some((name, version)) = program {
        format!("the version of {name} is now {version}")
    } else if let Some((name, value)) =
        now.machine.iter().find(|fact| is_digested(fact) && !earlier.machine.contains(fact))
    {
        format!("the {name} is now {value}")
    } else if let Some((name, value)) = now.settings.iter().find(|setting| !earlier.settings.contains(setting)) {
        format!("{name} is now {value}")
    } else if let Some((option, _)) =
        earlier.settings.iter().find(|setting| setting.0.starts_with("--") && !now.settings.contains(setting))
    {
        format!("{option} is now the default")
    } else {
        "made by another version of the laboratory".into()
    }
}

/// Whether the digest includes this fact of the machine, which is so for the clock and the kernel.
fn is_digested(fact: &(String, String)) -> bool {
    ["clock", "kernel"].contains(&fact.0.as_str())
}

fn json_line(run: &Run) -> anyhow::Result<String> {
    Ok(serde_json::to_string(run)? + "\n")
}

fn write_json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    std::fs::write(path, serde_json::to_string_pretty(value)? + "\n").with_context(|| path.display().to_string())
}

fn read_json<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temp_dir::TempDir;

    fn manifest(digest: &str) -> Manifest {
        Manifest { name: "x".into(), digest: digest.into(), blocks: 3, ..Manifest::default() }
    }

    #[test]
    fn runs_are_restored_without_an_incomplete_last_line() {
        let scene = TempDir::for_test();
        let mut store = ResultStore::open(scene.path(), manifest("a"), false).unwrap();
        for block in 0..2 {
            store.append_run(Run { block, ..Run::default() }).unwrap();
        }
        drop(store);
        let path = scene.path().join(RUNS_FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 5]).unwrap();
        let store = ResultStore::open(scene.path(), manifest("a"), false).unwrap();
        assert_eq!(store.runs.iter().map(|run| run.block).collect::<Vec<_>>(), [0]);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
    }

    #[test]
    fn results_of_another_experiment_are_kept_unless_fresh() {
        let scene = TempDir::for_test();
        ResultStore::open(scene.path(), manifest("a"), false).unwrap().append_run(Run::default()).unwrap();
        let error = ResultStore::open(scene.path(), manifest("b"), false).unwrap_err().to_string();
        assert!(error.contains("--fresh removes them"), "{error}");
        assert_eq!(load(scene.path()).unwrap().1.len(), 1);
        let timed = Manifest { settings: vec![("--time".into(), "5s".into())], ..manifest("b") };
        assert_eq!(describe_difference(&manifest("a"), &timed), "--time is now 5s");
        assert_eq!(describe_difference(&timed, &manifest("a")), "--time is now the default");
        assert_eq!(ResultStore::open(scene.path(), manifest("b"), true).unwrap().runs.len(), 0);
    }

    #[test]
    fn a_folder_without_a_manifest_holds_no_results() {
        let scene = TempDir::for_test();
        assert!(load(scene.path()).unwrap_err().to_string().ends_with("holds no results"));
    }
}
