//! The built virtual kernels, in the user's cache directory and in the directory of the package.

use std::cmp::Ordering;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::machine::{Machine, MachineCommand, MachineOptions};
use crate::emulator;

/// The directory of kernels that are installed by a package.
const SYSTEM_DIRECTORY: &str = "/usr/lib/ekiden-lab/kernels";
pub(super) const EXECUTABLE: &str = "linux";
const DESCRIPTION: &str = "kernel.json";
/// The directory beside a kernel that contains the configuration, the changes and the added files of its build.
pub const RECIPE: &str = "recipe";
/// Prints the properties of a running kernel, in three lines.
const DESCRIBE_SCRIPT: &str =
    "uname -r; cat /proc/sys/net/ipv4/tcp_available_congestion_control; cat /dev/ekiden-emulator; echo";

/// The properties of a kernel, in the file `kernel.json` beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelInfo {
    /// The release as uname(1) prints it: `6.12.117-ekiden`.
    pub release: String,
    /// The congestion controls of connections, by name.
    pub congestion_controls: Vec<String>,
    /// The version of the emulator in the kernel; empty if it has none.
    #[serde(default)]
    pub emulator: String,
    /// The SHA-256 of the executable, as hexadecimal digits.
    pub digest: String,
    /// The source package or file from which it was built.
    pub source: String,
    /// The source packages of Debian from which the kernel was built, such as `linux (= 6.12.117-1)`; empty if unknown.
    #[serde(default)]
    pub built_using: Vec<String>,
}

/// A kernel that [`Machine::boot`] can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualKernel {
    /// The executable, a statically linked program.
    pub path: PathBuf,
    /// The properties of the kernel, from its description.
    pub info: KernelInfo,
}

impl VirtualKernel {
    /// Opens the kernel of a file, or of a directory that [`super::build`] made. A file without a description is booted
    /// once to determine its properties.
    ///
    /// # Errors
    /// There is no such file, or it is not a virtual kernel.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let path = if path.is_dir() { path.join(EXECUTABLE) } else { path.to_owned() };
        let path = fs::canonicalize(&path).with_context(|| path.display().to_string())?;
        let description = path.with_file_name(DESCRIPTION);
        let info = match fs::read_to_string(&description) {
            Ok(text) => serde_json::from_str(&text).with_context(|| description.display().to_string())?,
            Err(_) => describe(&path, &path.display().to_string())?,
        };
        Ok(Self { path, info })
    }

    /// Describes the executable in a directory, and writes the description beside it.
    ///
    /// # Errors
    /// The kernel does not boot, or the description cannot be written.
    pub fn describe_new(directory: &Path, source: &str, built_using: Vec<String>) -> anyhow::Result<()> {
        let info = KernelInfo { built_using, ..describe(&directory.join(EXECUTABLE), source)? };
        Ok(fs::write(directory.join(DESCRIPTION), serde_json::to_string_pretty(&info)? + "\n")?)
    }

    /// Returns whether the kernel has the emulator and the congestion controls of this program.
    #[must_use]
    pub fn is_of_this_version(&self) -> bool {
        self.info.emulator == emulator::VERSION
    }

    /// Returns the kernel with the highest release among those of the version of this program, if there is one.
    ///
    /// # Errors
    /// A directory or a description cannot be read.
    pub fn find() -> anyhow::Result<Option<Self>> {
        Ok(list()?.into_iter().next().filter(Self::is_of_this_version))
    }
}

/// Returns all kernels: those of the version of this program first, then the highest release. Of one release, those in the
/// user's cache are first.
///
/// # Errors
/// A directory or a description cannot be read.
pub fn list() -> anyhow::Result<Vec<VirtualKernel>> {
    // A user without a cache directory, such as a service, can still use the kernels of the package.
    list_in(&cache_directory().into_iter().chain([PathBuf::from(SYSTEM_DIRECTORY)]).collect::<Vec<_>>())
}

/// Returns the kernels below `directories`: those of the version of this program first, then the highest release. Of one
/// release, those of the first directory are first.
fn list_in(directories: &[PathBuf]) -> anyhow::Result<Vec<VirtualKernel>> {
    let mut kernels = Vec::new();
    for directory in directories {
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries.with_context(|| directory.display().to_string())?,
        };
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
        paths.sort();
        // A directory without a description belongs to a build that was interrupted.
        for path in paths.iter().filter(|path| path.join(DESCRIPTION).exists()) {
            kernels.push(VirtualKernel::open(path)?);
        }
    }
    kernels.sort_by(|one, other| {
        let own = other.is_of_this_version().cmp(&one.is_of_this_version());
        own.then_with(|| compare_releases(&other.info.release, &one.info.release))
    });
    Ok(kernels)
}

/// The directory that contains one directory for each built kernel: in `XDG_CACHE_HOME`, by default `~/.cache`.
///
/// # Errors
/// Neither `XDG_CACHE_HOME` nor `HOME` is set.
pub fn cache_directory() -> anyhow::Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    Ok(cache.context("neither XDG_CACHE_HOME nor HOME is set")?.join("ekiden-lab/kernels"))
}

fn describe(path: &Path, source: &str) -> anyhow::Result<KernelInfo> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    let digest = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let command = MachineCommand::new("sh", &["-c", DESCRIBE_SCRIPT])?;
    let output = Machine::boot(path, &command, &MachineOptions::default(), true)?.run_to_end(&[])?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let mut lines = printed.lines().map(str::to_owned);
    let (Some(release), Some(controls), Some(emulator)) = (lines.next(), lines.next(), lines.next()) else {
        let errors = String::from_utf8_lossy(&output.stderr);
        anyhow::bail!(
            "{}: the virtual kernel does not boot on this machine: {}: {}",
            path.display(),
            output.status,
            errors.trim()
        );
    };
    let congestion_controls = controls.split_whitespace().map(str::to_owned).collect();
    let built_using = Vec::new();
    Ok(KernelInfo { release, congestion_controls, emulator, digest, source: source.to_owned(), built_using })
}

/// Compares releases such as `6.9.1-a` and `6.12.1-a` by their numbers.
fn compare_releases(one: &str, other: &str) -> Ordering {
    let numbers =
        |release: &str| release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok()).collect::<Vec<_>>();
    numbers(one).cmp(&numbers(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temp_dir::TempDir;

    #[test]
    fn releases_compare_by_number() {
        let mut releases = ["6.12.117-ekiden", "6.1.192-ekiden", "6.9-x", "7.2.11-ekiden"];
        releases.sort_by(|one, other| compare_releases(one, other));
        assert_eq!(releases, ["6.1.192-ekiden", "6.9-x", "6.12.117-ekiden", "7.2.11-ekiden"]);
    }

    #[test]
    fn unreadable_directory_is_an_error() {
        let base = TempDir::for_test();
        let file = base.path().join("kernels");
        fs::write(&file, "").unwrap();
        let Err(error) = list_in(&[base.path().join("missing"), file.clone()]) else { panic!("not an error") };
        assert_eq!(error.to_string(), file.display().to_string());
    }

    #[test]
    fn kernels_are_sorted_by_release_then_directory() {
        let base = TempDir::for_test();
        let add = |directory: &str, release: &str, emulator: &str| {
            let directory = base.path().join(directory);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(EXECUTABLE), "").unwrap();
            let info = KernelInfo {
                release: release.to_owned(),
                congestion_controls: Vec::new(),
                emulator: emulator.to_owned(),
                digest: String::new(),
                source: String::new(),
                built_using: Vec::new(),
            };
            fs::write(directory.join(DESCRIPTION), serde_json::to_string(&info).unwrap()).unwrap();
        };
        // Names of the directories sort in another order than the list below. Equal releases must follow the list.
        add("b-cache/two", "7.2.12-ekiden", emulator::VERSION);
        add("b-cache/one", "6.12.117-ekiden", emulator::VERSION);
        add("a-system/three", "7.2.12-ekiden", emulator::VERSION);
        add("a-system/four", "7.3.1-ekiden", emulator::VERSION);
        add("b-cache/old", "9.1.1-ekiden", "of another program");
        fs::create_dir(base.path().join("b-cache/build-1")).unwrap();
        let kernels = list_in(&["b-cache", "a-system", "missing"].map(|name| base.path().join(name))).unwrap();
        let places = kernels.iter().map(|kernel| kernel.path.parent().unwrap().strip_prefix(base.path()).unwrap());
        let places: Vec<String> = places.map(|place| place.display().to_string()).collect();
        assert_eq!(places, ["a-system/four", "b-cache/two", "a-system/three", "b-cache/one", "b-cache/old"]);
    }

    #[test]
    fn missing_kernel_file_is_named() {
        let error = format!("{:#}", VirtualKernel::open(Path::new("/nonexistent/linux")).unwrap_err());
        assert!(error.starts_with("/nonexistent/linux: "), "{error}");
    }
}
