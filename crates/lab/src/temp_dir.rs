//! Directories that are removed with their owner.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A folder that is removed with all that is in it when this is dropped.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Creates `base/name`, without the files of an earlier run.
    ///
    /// # Errors
    /// The file system's.
    pub fn create(base: &Path, name: &str) -> anyhow::Result<Self> {
        let folder = base.join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Self(folder))
    }

    /// Creates a directory for one test: the tests of one process run side by side.
    #[cfg(test)]
    pub fn for_test() -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("ekiden-lab-test-{}-{number}", std::process::id());
        Self::create(&std::env::temp_dir(), &name).expect("a directory among the temporary files")
    }

    /// The path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // An error has no recipient; the directory is among the temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
