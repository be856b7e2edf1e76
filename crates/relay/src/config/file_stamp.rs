//! The state of a file that is read again when it changes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Device, inode, size and time of the last change: another state means other content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    file: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl FileStamp {
    /// The state of the file now; `None` if there is none.
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            file: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            changed: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}
