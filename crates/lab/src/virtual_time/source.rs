//! Finds the source of Linux: an installed package, the package sources of the system, or Debian's backports.
//!
//! For the backports, apt-get runs with package lists of its own, in the directory of the build. Therefore neither root
//! nor a change of the system is needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use ekiden_sys::signal;

/// The versions that [`KernelSource::Newest`] tries in this order: the newest one with which the changes are tested,
/// and the newest one of Debian 12.
pub const NEWEST_VERSIONS: [&str; 2] = ["7.2", "6.12"];

/// The releases of Debian, beginning with the oldest whose source can be built.
const RELEASES: [&str; 3] = ["bookworm", "trixie", "forky"];
/// Other names of the main suite in package sources.
const SUITE_ALIASES: [&str; 5] = ["oldstable", "stable", "testing", "unstable", "sid"];
/// The directory in which Debian's source packages install their archives.
const INSTALLED_SOURCES: &str = "/usr/src";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The private configuration of apt, below the directory of the build.
const PRIVATE_CONFIG: &str = "apt/apt.conf";
const PRIVATE_SOURCES: &str = "apt/sources.list";

/// The source of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelSource {
    /// The first of [`NEWEST_VERSIONS`] that is available.
    Newest,
    /// A version of the distribution, such as `6.12`: its package `linux-source-6.12`.
    Version(String),
    /// A source package of Debian, or a tar archive.
    File(PathBuf),
}

impl KernelSource {
    /// Returns the path of the archive, which is downloaded into `work` if it is not on this machine. `report_progress`
    /// is called with a line for each step.
    ///
    /// # Errors
    /// There is no such file, or no package of this version; the error names the places that were searched.
    pub fn find(&self, work: &Path, report_progress: &mut dyn FnMut(&str)) -> anyhow::Result<PathBuf> {
        match self {
            Self::File(path) => fs::canonicalize(path).with_context(|| path.display().to_string()),
            Self::Version(version) => PackageFinder::of_system(work).find(version, report_progress),
            Self::Newest => PackageFinder::of_system(work).find_newest(report_progress),
        }
    }
}

/// Finds the package `linux-source-VERSION`, and downloads it.
struct PackageFinder<'a> {
    /// The program that downloads packages: apt-get(8).
    apt_get: PathBuf,
    /// The directory of installed archives: [`INSTALLED_SOURCES`].
    installed: PathBuf,
    /// The release of this system, such as `bookworm`; empty if unknown.
    release: String,
    work: &'a Path,
}

impl<'a> PackageFinder<'a> {
    fn of_system(work: &'a Path) -> Self {
        let release = release_name(&fs::read_to_string("/etc/os-release").unwrap_or_default());
        Self { apt_get: "apt-get".into(), installed: INSTALLED_SOURCES.into(), release, work }
    }

    fn find_newest(&self, report_progress: &mut dyn FnMut(&str)) -> anyhow::Result<PathBuf> {
        let [newest, fallback] = NEWEST_VERSIONS;
        match self.find(newest, report_progress) {
            Ok(archive) => {
                report_progress(&format!("Linux {newest}: the newest version that the changes are tested with"));
                Ok(archive)
            }
            Err(error) => {
                ensure!(!signal::is_interrupted(), "interrupted");
                let archive = self.find(fallback, report_progress).with_context(|| error.to_string())?;
                report_progress(&format!(
                    "Linux {fallback}: {newest}, whose system calls cost half, is not available. {error}"
                ));
                Ok(archive)
            }
        }
    }

    /// Returns the archive of a version: installed, from the package sources of the system, or from the backports.
    fn find(&self, version: &str, report_progress: &mut dyn FnMut(&str)) -> anyhow::Result<PathBuf> {
        let is_version = version.starts_with(|first: char| first.is_ascii_digit())
            && version.chars().all(|character| character.is_ascii_alphanumeric() || ".+-".contains(character));
        ensure!(is_version, "expected a version of Linux like 6.12, not {version:?}");
        let package = format!("linux-source-{version}");
        let installed = self.installed.join(format!("{package}.tar.xz"));
        if installed.exists() {
            return Ok(installed);
        }
        let mut failures = vec![format!("{}: no such file", installed.display())];
        report_progress(&format!("looking for {package} in the package sources of this system"));
        match self.download(&package, &[]) {
            Ok(archive) => return Ok(archive),
            Err(error) => {
                failures.push(format!("package sources of this system, as of the last apt-get update: {error}"))
            }
        }
        let mirrors = self.mirrors();
        if mirrors.is_empty() {
            failures.push("backports: no mirror of Debian among the package sources of this system".to_owned());
        }
        for (mirror, suite) in mirrors.iter().flat_map(|mirror| self.backports().map(move |suite| (mirror, suite))) {
            ensure!(!signal::is_interrupted(), "interrupted");
            report_progress(&format!("looking for {package} in {mirror} {suite}"));
            match self.download_from(&package, mirror, &suite) {
                Ok(archive) => return Ok(archive),
                Err(error) => failures.push(format!("{mirror} {suite}: {error}")),
            }
        }
        bail!("{package} is not available:\n  {}", failures.join("\n  "))
    }

    /// The suites of backports of this release and of later ones.
    fn backports(&self) -> impl Iterator<Item = String> + use<> {
        let own = RELEASES.iter().position(|release| *release == self.release).unwrap_or(0);
        RELEASES[own..].iter().map(|release| format!("{release}-backports"))
    }

    /// Downloads a package of a suite with a private state of apt that has no other package source.
    fn download_from(&self, package: &str, mirror: &str, suite: &str) -> anyhow::Result<PathBuf> {
        let directory = self.work.join("apt");
        for name in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(directory.join(name))?;
        }
        // Only the list of packages is needed, not those of files, descriptions or icons.
        let source = format!("deb [signed-by={KEYRING} target=Packages] {mirror} {suite} main\n");
        fs::write(self.work.join(PRIVATE_SOURCES), source)?;
        fs::write(self.work.join(PRIVATE_CONFIG), private_config(&directory))?;
        let config = format!("--config-file={}", self.work.join(PRIVATE_CONFIG).display());
        self.apt_get(&["update", &config])?;
        self.download(package, &[&config])
    }

    fn download(&self, package: &str, options: &[&str]) -> anyhow::Result<PathBuf> {
        // apt-get would interpret a plain name as a regular expression if there is no such package: 6.1 matches 6.12.
        let pattern = format!("?exact-name({package})");
        self.apt_get(&[&["download", &pattern], options].concat())?;
        let mut files = fs::read_dir(self.work)?.filter_map(|entry| Some(entry.ok()?.path()));
        let is_package = |file: &PathBuf| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&format!("{package}_")) && name.ends_with(".deb")
        };
        files.find(is_package).context("apt-get downloaded no package")
    }

    /// The mirrors of Debian in the package sources of this system; they are known even before the first `apt-get
    /// update`.
    fn mirrors(&self) -> Vec<String> {
        mirrors(&self.apt_get(&["update", "--print-uris"]).unwrap_or_default(), &self.release)
    }

    /// Runs apt-get and returns its output. On failure, the error is the first one that apt-get prints.
    fn apt_get(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(&self.apt_get);
        command.arg("--quiet").args(arguments).current_dir(self.work).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        let output = command.output().with_context(|| self.apt_get.display().to_string())?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let error = text.lines().find_map(|line| line.strip_prefix("E: "));
        match error {
            // The message of apt-get for a pattern that no package matches.
            None | Some("Handler silently failed") => bail!("no such package"),
            Some(error) => bail!("{error}"),
        }
    }
}

/// Returns the Debian source packages from which a kernel of `archive` is built, as in the field `Built-Using` of a
/// package: Linux, and the statically linked C library. Empty if the archive is not from a package of Debian.
#[must_use]
pub fn built_using(archive: &Path) -> Vec<String> {
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    let is_installed = archive.parent() == Some(Path::new(INSTALLED_SOURCES));
    let linux = match name.strip_suffix(".tar.xz") {
        Some(package) if is_installed => source_package("dpkg-query", package),
        _ if name.ends_with(".deb") => source_package("dpkg-deb", &archive.to_string_lossy()),
        _ => None,
    };
    let Some(linux) = linux else { return Vec::new() };
    [Some(linux), source_package("dpkg-query", "libc6-dev")].into_iter().flatten().collect()
}

/// Returns the source package of `package`, as reported by `program`: `dpkg-query` for an installed package, `dpkg-deb`
/// for a file.
fn source_package(program: &str, package: &str) -> Option<String> {
    let format = "--showformat=${source:Package} (= ${source:Version})";
    let output = Command::new(program).args(["--show", format, package]).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The settings of apt for a state below `directory`. They are read after those of the system, so proxies stay
/// configured.
fn private_config(directory: &Path) -> String {
    let directory = directory.display();
    // The user `_apt` cannot enter the directory, of which apt-get would warn. Commands that the system runs after an
    // update concern the system's package lists.
    format!(
        "Dir::Etc::SourceList \"{directory}/sources.list\";\n\
         Dir::Etc::SourceParts \"-\";\n\
         Dir::State::Lists \"{directory}/lists\";\n\
         Dir::Cache \"{directory}/cache\";\n\
         APT::Sandbox::User \"root\";\n\
         #clear APT::Update::Pre-Invoke;\n\
         #clear APT::Update::Post-Invoke;\n\
         #clear APT::Update::Post-Invoke-Success;\n"
    )
}

/// Returns the name of the release in the text of an os-release(5) file.
fn release_name(text: &str) -> String {
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.unwrap_or_default().trim_matches('"').to_owned()
}

/// Returns the mirrors that have the main suite of `release`, from the output of `apt-get update --print-uris`, whose
/// lines start with `'http://deb.debian.org/debian/dists/bookworm/InRelease'`.
fn mirrors(uris: &str, release: &str) -> Vec<String> {
    let mut mirrors: Vec<String> = Vec::new();
    for uri in uris.lines().filter_map(|line| line.strip_prefix('\'')?.split_once('\'').map(|(uri, _)| uri)) {
        let Some((mirror, suite)) = uri.strip_suffix("/InRelease").and_then(|uri| uri.rsplit_once("/dists/")) else {
            continue;
        };
        let is_main = suite == release || RELEASES.contains(&suite) || SUITE_ALIASES.contains(&suite);
        if is_main && !mirrors.iter().any(|other| other == mirror) {
            mirrors.push(mirror.to_owned());
        }
    }
    mirrors
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use ekiden_testing::skipped;

    use super::*;
    use crate::temp_dir::TempDir;

    /// A script in place of apt-get(8). It finds Linux 6.12 in the package sources of the system, and 7.2 in
    /// trixie-backports, and logs its calls.
    const FAKE_APT_GET: &str = r#"#!/bin/sh
        echo "$*" >>calls
        config=$(echo "$*" | sed -n 's/.*--config-file=//p')
        case "$*" in
            *--print-uris*)
                echo "'http://mirror.example/debian/dists/bookworm/InRelease' mirror.example_InRelease 0"
                echo "'http://mirror.example/debian-security/dists/bookworm-security/InRelease' mirror.example_InRelease 0"
                exit ;;
            *update*)
                grep -q SourceParts.*- "$config" && grep -q signed-by= apt/sources.list || exit 1
                grep -q ' bookworm-backports \| trixie-backports ' apt/sources.list && exit
                echo "E: The repository has no Release file." >&2; exit 100 ;;
            *'exact-name(linux-source-6.12)'*) [ -z "$config" ] && touch linux-source-6.12_6.12.117-1_all.deb && exit ;;
            *'exact-name(linux-source-7.2)'*)
                [ "$config" ] && grep -q trixie-backports apt/sources.list && touch linux-source-7.2_7.2.12-1_all.deb && exit ;;
        esac
        echo "E: Handler silently failed" >&2
        exit 100
    "#;

    /// The directory of a build, with the fake apt-get in it.
    fn work_directory() -> TempDir {
        let work = TempDir::for_test();
        let apt_get = work.path().join("apt-get");
        fs::write(&apt_get, FAKE_APT_GET).unwrap();
        fs::set_permissions(&apt_get, fs::Permissions::from_mode(0o755)).unwrap();
        work
    }

    fn finder(work: &TempDir) -> PackageFinder<'_> {
        let work = work.path();
        let (apt_get, installed) = (work.join("apt-get"), work.join("src"));
        PackageFinder { apt_get, installed, release: "bookworm".to_owned(), work }
    }

    fn file_name(path: &Path) -> String {
        path.file_name().unwrap().to_string_lossy().into_owned()
    }

    #[test]
    fn newer_version_is_taken_from_backports() {
        let work = work_directory();
        let archive = finder(&work).find("7.2", &mut |_| {}).unwrap();
        assert_eq!(file_name(&archive), "linux-source-7.2_7.2.12-1_all.deb");
        let sources = fs::read_to_string(work.path().join(PRIVATE_SOURCES)).unwrap();
        let expected =
            format!("deb [signed-by={KEYRING} target=Packages] http://mirror.example/debian trixie-backports main\n");
        assert_eq!(sources, expected);
    }

    #[test]
    fn version_of_this_release_needs_no_private_apt_state() {
        let work = work_directory();
        let archive = finder(&work).find("6.12", &mut |_| {}).unwrap();
        assert_eq!(file_name(&archive), "linux-source-6.12_6.12.117-1_all.deb");
        assert!(!work.path().join("apt").exists());
        fs::create_dir(work.path().join("src")).unwrap();
        fs::write(work.path().join("src/linux-source-6.12.tar.xz"), "").unwrap();
        let archive = finder(&work).find("6.12", &mut |_| {}).unwrap();
        assert_eq!(file_name(&archive), "linux-source-6.12.tar.xz", "an installed package is not downloaded");
    }

    #[test]
    fn unknown_version_error_lists_the_searched_places() {
        let work = work_directory();
        let error = finder(&work).find("9.9", &mut |_| {}).unwrap_err().to_string();
        let installed = work.path().join("src/linux-source-9.9.tar.xz");
        let expected = format!(
            "linux-source-9.9 is not available:\n  {}: no such file\n  \
             package sources of this system, as of the last apt-get update: no such package\n  \
             http://mirror.example/debian bookworm-backports: no such package\n  \
             http://mirror.example/debian trixie-backports: no such package\n  \
             http://mirror.example/debian forky-backports: The repository has no Release file.",
            installed.display()
        );
        assert_eq!(error, expected);
        let error = finder(&work).find("--help", &mut |_| {}).unwrap_err().to_string();
        assert_eq!(error, "expected a version of Linux like 6.12, not \"--help\"");
    }

    #[test]
    fn newest_version_is_taken_or_the_reason_is_reported() {
        let work = work_directory();
        let mut lines = Vec::new();
        let archive = finder(&work).find_newest(&mut |line| lines.push(line.to_owned())).unwrap();
        assert_eq!(file_name(&archive), "linux-source-7.2_7.2.12-1_all.deb");
        assert_eq!(lines.pop().unwrap(), "Linux 7.2: the newest version that the changes are tested with");

        let work = work_directory();
        let apt_get = fs::read_to_string(work.path().join("apt-get")).unwrap();
        fs::write(work.path().join("apt-get"), apt_get.replace("trixie-backports ", "no-backports ")).unwrap();
        let archive = finder(&work).find_newest(&mut |line| lines.push(line.to_owned())).unwrap();
        assert_eq!(file_name(&archive), "linux-source-6.12_6.12.117-1_all.deb");
        let line = lines.pop().unwrap();
        assert!(
            line.starts_with("Linux 6.12: 7.2, whose system calls cost half, is not available. linux-source-7.2"),
            "{line}"
        );
        assert!(line.contains("trixie-backports: The repository has no Release file."), "{line}");
    }

    #[test]
    fn a_package_names_its_source_package() {
        let work = TempDir::for_test();
        let (tree, package) = (work.path().join("tree"), work.path().join("linux-source-6.12_1.deb"));
        fs::create_dir_all(tree.join("DEBIAN")).unwrap();
        let control = "Package: linux-source-6.12\nVersion: 6.12.117-1\nSource: linux-6.12\nArchitecture: all\n\
                       Maintainer: a <a@b>\nDescription: a\n";
        fs::write(tree.join("DEBIAN/control"), control).unwrap();
        let Ok(built) = Command::new("dpkg-deb").arg("--build").arg(&tree).arg(&package).output() else {
            skipped("dpkg-deb is missing");
            return;
        };
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let using = built_using(&package);
        assert_eq!(using[0], "linux-6.12 (= 6.12.117-1)");
        assert!(using[1..].iter().all(|library| library.starts_with("glibc (= ")), "{using:?}");
        assert!(built_using(&work.path().join("linux-6.12.tar.xz")).is_empty());
    }

    #[test]
    fn mirrors_are_those_with_the_main_suite() {
        let uris = "'https://a.example/dists/stable/InRelease' a 0\n'http://b.example/dists/nodistro/InRelease' b 0\n\
                    'https://a.example/dists/stable/main/binary-amd64/Packages.xz' a 0\nnoise\n\
                    'http://c.example/x/dists/bookworm-updates/InRelease' c 0\n\
                    'http://d.example/dists/other/InRelease' d 0\n'https://a.example/dists/sid/InRelease' a 0\n";
        assert_eq!(mirrors(uris, "other"), ["https://a.example", "http://d.example"]);
        assert_eq!(release_name("ID=debian\nVERSION_CODENAME=\"trixie\"\n"), "trixie");
    }
}
