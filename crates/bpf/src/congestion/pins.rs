//! Pins in the BPF file system: for each congestion control a directory with its link (or, the older way, its map) and
//! the connections' storages.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use libbpf_rs::{Link, MapHandle};

use super::CongestionError;
use crate::messages;

/// Everything of ours in the BPF file system is under here.
pub const PIN_ROOT: &str = "/sys/fs/bpf/ekiden";

const BPF_FILE_SYSTEM: &str = "/sys/fs/bpf";

/// Other users may read the telemetry of their own connections.
const READABLE_DIRECTORY: u32 = 0o755;
const READABLE_FILE: u32 = 0o644;

/// Opens for reading; permitted to users other than the owner (linux/bpf.h).
const BPF_F_RDONLY: u32 = 1 << 3;

/// The pins of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PinKind {
    Link,
    Map,
    Sections,
    Resumes,
}

impl PinKind {
    const ALL: [Self; 4] = [Self::Link, Self::Map, Self::Sections, Self::Resumes];

    pub(super) fn path(self, name: &str) -> PathBuf {
        let file = match self {
            Self::Link => "link",
            Self::Map => "map",
            Self::Sections => "sections",
            Self::Resumes => "resumes",
        };
        directory(name).join(file)
    }

    /// The message for users with read access, and no write access, to a storage.
    pub(super) fn write_permission_hint(self, name: &str) -> String {
        let path = self.path(name);
        let path = path.display();
        format!("this user may not write {path}: chgrp GROUP {path}; chmod g+w {path}")
    }
}

fn directory(name: &str) -> PathBuf {
    Path::new(PIN_ROOT).join("cc").join(name)
}

/// Whether a BPF file system is where pins go.
#[must_use]
pub fn is_mounted() -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|line| {
        let kind = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').next());
        line.split(' ').nth(4) == Some(BPF_FILE_SYSTEM) && kind == Some("bpf")
    })
}

/// The names that have a pin, whole or in part, as far as this process sees.
#[must_use]
pub fn pinned_names() -> Vec<String> {
    let entries = fs::read_dir(Path::new(PIN_ROOT).join("cc")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Makes the directory of `name`.
pub(super) fn create_directory(name: &str) -> Result<(), CongestionError> {
    if !is_mounted() {
        return Err(CongestionError::NotMounted);
    }
    let directory = directory(name);
    fs::create_dir_all(&directory).map_err(|cause| pin_error(&directory, cause))?;
    // Up to the file system itself, which is the administrator's.
    directory.ancestors().take(3).try_for_each(|one| set_mode(one, READABLE_DIRECTORY))
}

/// Pins a storage of the connections, in the place of an older one.
pub(super) fn pin_storage(name: &str, kind: PinKind, storage: &mut MapHandle) -> Result<(), CongestionError> {
    let path = kind.path(name);
    remove(&path)?;
    storage.pin(&path).map_err(|error| pin_error(&path, io_cause(&error)))?;
    set_mode(&path, READABLE_FILE)
}

pub(super) fn pin_map(name: &str, map: &mut MapHandle) -> Result<(), CongestionError> {
    let path = PinKind::Map.path(name);
    remove(&path)?;
    map.pin(&path).map_err(|error| pin_error(&path, io_cause(&error)))
}

pub(super) fn pin_link(name: &str, link: &mut Link) -> Result<(), CongestionError> {
    let path = PinKind::Link.path(name);
    link.pin(&path).map_err(|error| pin_error(&path, io_cause(&error)))
}

pub(super) fn link(name: &str) -> Option<Link> {
    let path = PinKind::Link.path(name);
    messages::silence();
    path.exists().then(|| Link::open(path).ok()).flatten()
}

pub(super) fn map(name: &str) -> Option<MapHandle> {
    open(&PinKind::Map.path(name), 0)
}

/// The connections' telemetry; for reading only where that is all we may.
pub(super) fn sections(name: &str) -> Option<MapHandle> {
    storage(name, PinKind::Sections)
}

/// The connections' requests; for reading only where that is all we may.
pub(super) fn resumes(name: &str) -> Option<MapHandle> {
    storage(name, PinKind::Resumes)
}

/// A storage of the connections; for reading only where that is all we may.
pub(super) fn storage(name: &str, kind: PinKind) -> Option<MapHandle> {
    let path = kind.path(name);
    open(&path, 0).or_else(|| open(&path, BPF_F_RDONLY))
}

fn open(path: &Path, flags: u32) -> Option<MapHandle> {
    messages::silence();
    path.exists().then(|| MapHandle::from_pinned_path_with_file_flags(path, flags).ok()).flatten()
}

/// Removes all pins of `name`, and the directories that are empty then.
pub(super) fn remove_all(name: &str) -> Result<(), CongestionError> {
    for pin in PinKind::ALL {
        remove(&pin.path(name))?;
    }
    let directory = directory(name);
    match fs::remove_dir(&directory) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(pin_error(&directory, cause)),
        _ => {}
    }
    for parent in directory.ancestors().skip(1).take(2) {
        // Not empty as long as another is there.
        let _ = fs::remove_dir(parent);
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), CongestionError> {
    match fs::remove_file(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(pin_error(path, cause)),
        _ => Ok(()),
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<(), CongestionError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|cause| pin_error(path, cause))
}

fn pin_error(path: &Path, cause: io::Error) -> CongestionError {
    CongestionError::Pin { path: path.to_owned(), cause }
}

fn io_cause(error: &libbpf_rs::Error) -> io::Error {
    io::Error::other(error.to_string())
}
