//! Detects executables that are replaced while an experiment runs, for example by a build. Runs of the new executable
//! would otherwise be stored as runs of the old one.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Device, inode, size in bytes, and time of the last change of content in seconds and nanoseconds.
type FileIdentity = (u64, u64, u64, i64, i64);

/// The executables of an experiment that a build can replace: that of this process, and ekiden.
#[derive(Debug)]
pub struct ProgramFiles(Vec<(PathBuf, FileIdentity)>);

impl ProgramFiles {
    /// Records the present state of the files.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn record(paths: impl IntoIterator<Item = PathBuf>) -> anyhow::Result<Self> {
        let files = paths.into_iter().map(|path| Ok((path.clone(), file_identity(&path)?)));
        Ok(Self(files.collect::<anyhow::Result<_>>()?))
    }

    /// # Errors
    /// A file is missing or differs from the recorded one.
    pub fn ensure_unchanged(&self) -> anyhow::Result<()> {
        for (path, recorded) in &self.0 {
            anyhow::ensure!(
                file_identity(path).is_ok_and(|identity| identity == *recorded),
                "{} was replaced while the experiment ran",
                path.display()
            );
        }
        Ok(())
    }
}

fn file_identity(path: &Path) -> anyhow::Result<FileIdentity> {
    let file = fs::metadata(path).with_context(|| path.display().to_string())?;
    Ok((file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temp_dir::TempDir;

    #[test]
    fn a_program_that_is_replaced_or_removed_is_reported() {
        let folder = TempDir::for_test();
        let (program, new) = (folder.path().join("program"), folder.path().join("new"));
        fs::write(&program, "old").unwrap();
        fs::write(&new, "new").unwrap();
        let files = ProgramFiles::record([program.clone()]).unwrap();
        files.ensure_unchanged().unwrap();
        fs::rename(&new, &program).unwrap();
        let error = || files.ensure_unchanged().unwrap_err().to_string();
        assert_eq!(error(), format!("{} was replaced while the experiment ran", program.display()));
        fs::remove_file(&program).unwrap();
        assert_eq!(error(), format!("{} was replaced while the experiment ran", program.display()));
    }
}
