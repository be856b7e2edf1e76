//! Directories that are removed when their owner is dropped.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A directory that is removed with its content on drop.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Creates the directory `base/name`; an existing directory of that name is removed first.
    ///
    /// # Errors
    /// The directory cannot be created, or the existing one cannot be removed.
    pub fn create(base: &Path, name: &str) -> anyhow::Result<Self> {
        let folder = base.join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Self(folder))
    }

    /// Creates a directory for one test; its name is unique, because the tests of a process run concurrently.
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
        // `drop` cannot return an error; the directory is among the temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
