//! Detection of changes of a file.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Device, inode, size and time of the last change of content, owner or mode: if one of them differs, the result of
/// reading the file may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    file: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl FileStamp {
    /// Returns the current state of the file; `None` if it does not exist.
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            file: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}
