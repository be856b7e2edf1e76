//! Builds a virtual kernel from the source package of the distribution, without root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use ekiden_sys::signal;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::kernel::{self, VirtualKernel};
use super::source::{self, KernelSource};
use crate::emulator;
use crate::temp_dir::TempDir;

/// The kernel configuration, applied on top of `allnoconfig`.
const CONFIG: &str = include_str!("../../kernel/config");
/// The changes to files of the kernel, as read by [`Edits`].
const EDITS: &str = include_str!("../../kernel/edits.toml");
const LICENSE: &str = include_str!("../../kernel/LICENSE");
/// The names of files in a directory, with their content.
macro_rules! files {
    ($directory:literal: $($name:literal)+) => {
        &[$(($name, include_str!(concat!("../../", $directory, "/", $name)))),+]
    };
}

/// The files that are added in [`ADDED_DIRECTORY`]: those of the laboratory, and the congestion controls in the form
/// for BPF, with another `kernel.h`.
const ADDED_FILES: [&[(&str, &str)]; 3] = [
    files!("kernel/ekiden": "Makefile" "charge.c" "clock.c" "clock.h" "ekiden.h" "emulator.c" "emulator.h" "host.c" "host_user.c"),
    files!("kernel/congestion": "ctcp_draft.bpf.c" "kernel.h" "register.c"),
    files!("../bpf/src/bpf":
        "bic.bpf.c" "bic.h" "cc.h" "ctcp.bpf.c" "ctcp.h" "ctcp_path.h" "growth.h" "highspeed.bpf.c" "highspeed.h" "hybla.bpf.c" "hybla.h" "last_values.h" "omitted_calls.h" "scalable.bpf.c" "scalable.h" "telemetry.h" "vegas.bpf.c" "vegas.h" "westwood.bpf.c" "westwood.h"),
];
const ADDED_DIRECTORY: &str = "arch/um/kernel/ekiden";
/// The emulator of `crates/kernel-emulator`, which `build.rs` of this package compiles, and its file name in
/// [`ADDED_DIRECTORY`].
const EMULATOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/emulator_library.o"));
const EMULATOR_OBJECT: &str = "emulator_library.o";

/// A compiled kernel without the emulator, and the script for its last link.
const KERNEL_OBJECT: &str = "kernel.o";
const LINKER_SCRIPT: &str = "kernel.lds";

/// The programs that a build needs, each with its Debian package.
const BUILD_PROGRAMS: [(&str, &str); 7] = [
    ("bc", "bc"),
    ("bison", "bison"),
    ("flex", "flex"),
    ("gcc", "gcc"),
    ("make", "make"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
];

/// The largest directories of the source that a build for User-Mode Linux does not read.
const UNUSED_DIRECTORIES: [&str; 2] = ["drivers/gpu/drm/amd/include", "tools/testing"];

/// The changes to files of the kernel: `kernel/edits.toml`.
#[derive(Deserialize)]
struct Edits {
    edit: Vec<Edit>,
}

/// One replacement. Unlike a hunk of a patch, it applies to every version of Linux that contains the text; it fails if
/// the text is not found exactly `times` times.
#[derive(Deserialize)]
struct Edit {
    file: PathBuf,
    find: String,
    replace: String,
    #[serde(default = "once")]
    times: usize,
}

const fn once() -> usize {
    1
}

impl Edit {
    fn apply(&self, tree: &Path) -> anyhow::Result<()> {
        let path = tree.join(&self.file);
        let text = fs::read_to_string(&path).with_context(|| self.file.display().to_string())?;
        let found = text.matches(&self.find).count();
        ensure!(
            found == self.times,
            "{}: found {:?} {found} times in this version of Linux, expected {}",
            self.file.display(),
            self.find.trim(),
            self.times
        );
        Ok(fs::write(&path, text.replace(&self.find, &self.replace))?)
    }
}

/// Builds a kernel, or returns the kernel that was built earlier from the same source with the same configuration and
/// the same emulator. `report_progress` is called with a line for each step.
///
/// # Errors
/// A program of the build or the source package is missing, or a step failed; the error contains the end of its output.
pub fn build_kernel(source: &KernelSource, report_progress: &mut dyn FnMut(&str)) -> anyhow::Result<VirtualKernel> {
    ensure_build_programs()?;
    ensure!(!EMULATOR.is_empty(), "virtual kernels run on x86-64 only");
    let kernels = kernel::cache_directory()?;
    // After an interrupt the running step fails, and the directory of the build, which has 1.5 GB, is removed.
    signal::catch_interrupts()?;
    let work_dir = TempDir::create(&kernels, &format!("build-{}", std::process::id()))?;
    let work_dir = work_dir.path();
    let archive = source.find(work_dir, report_progress)?;
    let digest = objects_digest(&archive)?;
    let objects = kernels.with_file_name("objects").join(&digest);
    let directory = kernels.join(format!("{digest}-{}", emulator::VERSION));
    if let Ok(built) = VirtualKernel::open(&directory) {
        return Ok(built);
    }
    let started = Instant::now();
    if !objects.exists() {
        let new = compile_objects(&archive, work_dir, report_progress)?;
        rename(&new, &objects)?;
    }
    let new = link_kernel(&objects, work_dir)?;
    let source = archive.file_name().unwrap_or_default().to_string_lossy();
    // The kernel is moved to its directory together with its description, so that an interrupted build leaves no kernel
    // without a description.
    VirtualKernel::describe_new(&new, &source, source::built_using(&archive))?;
    rename(&new, &directory)?;
    let built = VirtualKernel::open(&directory)?;
    report_progress(&format!("built Linux {} in {} s", built.info.release, started.elapsed().as_secs()));
    Ok(built)
}

/// Compiles a kernel, and returns a directory with everything but the emulator: the object, the linker script and the
/// recipe.
fn compile_objects(archive: &Path, work_dir: &Path, report_progress: &mut dyn FnMut(&str)) -> anyhow::Result<PathBuf> {
    report_progress(&format!("unpacking {}", archive.display()));
    unpack(archive, work_dir)?;
    report_progress("configuring");
    let tree = prepare_tree(work_dir)?;
    let new = work_dir.join("objects");
    write_recipe(&new.join(kernel::RECIPE), &tree)?;
    make(&tree, &["allnoconfig"])?;
    ensure_configured(&tree)?;
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    report_progress(&format!("compiling with {jobs} processes; five minutes on two cores"));
    make(&tree, &[&format!("-j{jobs}"), "linux"])?;
    let object = new.join(KERNEL_OBJECT);
    run_step(Command::new("ld").arg("-r").args(["vmlinux.o", "init/version-timestamp.o", "-o"]).arg(&object), &tree)?;
    run_step(Command::new("strip").arg("-g").arg(&object), &tree)?;
    fs::copy(tree.join("arch/um/kernel/vmlinux.lds"), new.join(LINKER_SCRIPT))?;
    Ok(new)
}

/// Links a kernel with the emulator as scripts/link-vmlinux.sh does. Returns the directory of the kernel.
fn link_kernel(objects: &Path, work_dir: &Path) -> anyhow::Result<PathBuf> {
    let new = work_dir.join("new");
    fs::create_dir(&new)?;
    run_step(Command::new("cp").arg("-r").arg(objects.join(kernel::RECIPE)).arg(&new), work_dir)?;
    let emulator = new.join(kernel::RECIPE).join("ekiden").join(EMULATOR_OBJECT);
    fs::write(&emulator, EMULATOR)?;
    let mut link = Command::new("gcc");
    link.args(["-static", "-Wl,-z,noexecstack", "-Wl,--wrap,malloc", "-Wl,--wrap,free", "-Wl,--wrap,calloc"])
        .arg(format!("-Wl,-T,{}", objects.join(LINKER_SCRIPT).display()))
        .args([&objects.join(KERNEL_OBJECT), &emulator])
        .args(["-lutil", "-lrt", "-lpthread", "-o"])
        .arg(new.join(kernel::EXECUTABLE));
    run_step(&mut link, work_dir)?;
    Ok(new)
}

/// Moves a finished directory to `target`, unless another build has created it in the meantime.
fn rename(new: &Path, target: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(target.parent().context("the directory has no parent")?)?;
    match fs::rename(new, target) {
        Err(_) if target.exists() => Ok(()),
        done => done.with_context(|| target.display().to_string()),
    }
}

fn ensure_build_programs() -> anyhow::Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has = |program: &str| std::env::split_paths(&path).any(|directory| directory.join(program).is_file());
    let missing: Vec<&str> =
        BUILD_PROGRAMS.iter().filter(|(program, _)| !has(program)).map(|(_, package)| *package).collect();
    ensure!(
        missing.is_empty(),
        "programs for building a kernel are missing: run scripts/setup lab, or apt-get install {}",
        missing.join(" ")
    );
    Ok(())
}

/// The name of compiled objects in the cache: a digest of the source, the configuration and the changes.
fn objects_digest(archive: &Path) -> anyhow::Result<String> {
    let mut digest = Sha256::new();
    digest.update(fs::read(archive).with_context(|| archive.display().to_string())?);
    for text in
        [CONFIG, EDITS].into_iter().chain(ADDED_FILES.concat().into_iter().flat_map(|(name, text)| [name, text]))
    {
        digest.update(text);
        digest.update([0]);
    }
    Ok(digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// Unpacks a tar archive, or the tar archive in a source package.
fn unpack(archive: &Path, work: &Path) -> anyhow::Result<()> {
    let excluded: Vec<String> = UNUSED_DIRECTORIES.iter().map(|name| format!("--exclude=*/{name}")).collect();
    let name = archive.display().to_string();
    if archive.extension().is_none_or(|end| end != "deb") {
        return run_step(Command::new("tar").arg("--extract").arg("--file").arg(archive).args(&excluded), work);
    }
    let script = r#"dpkg-deb --fsys-tarfile "$0" | tar --extract --to-stdout --wildcards './usr/src/linux-source-*.tar.xz' | xz -dc -T0 | tar --extract "$@""#;
    run_step(Command::new("bash").args(["-o", "pipefail", "-c", script, &name]).args(&excluded), work)
}

/// Returns the directory of the kernel source, after the changes and the configuration are applied.
fn prepare_tree(work: &Path) -> anyhow::Result<PathBuf> {
    let mut directories = fs::read_dir(work)?.filter_map(|entry| Some(entry.ok()?.path()));
    let tree = directories.find(|path| path.join("arch/um").is_dir()).context("the archive has no Linux source")?;
    let edits: Edits = toml::from_str(EDITS)?;
    edits.edit.iter().try_for_each(|edit| edit.apply(&tree))?;
    let added = tree.join(ADDED_DIRECTORY);
    fs::create_dir_all(&added)?;
    for (name, text) in ADDED_FILES.concat() {
        fs::write(added.join(name), text)?;
    }
    fs::write(added.join(EMULATOR_OBJECT), EMULATOR)?;
    fs::write(tree.join("ekiden.config"), CONFIG)?;
    Ok(tree)
}

/// Writes the files that a distributor of the kernel must provide besides the source package: the configuration, the
/// changes, the added files of a prepared tree, and the licence.
fn write_recipe(recipe: &Path, tree: &Path) -> anyhow::Result<()> {
    let added = recipe.join("ekiden");
    fs::create_dir_all(&added)?;
    for entry in fs::read_dir(tree.join(ADDED_DIRECTORY))? {
        let file = entry?;
        fs::copy(file.path(), added.join(file.file_name()))?;
    }
    for (name, text) in [("config", CONFIG), ("edits.toml", EDITS), ("LICENSE", LICENSE)] {
        fs::write(recipe.join(name), text)?;
    }
    Ok(())
}

fn make(tree: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("make");
    // By default the kernel contains the date and the host of the build, and differs between builds of the same source.
    command
        .args(["ARCH=um", "KCONFIG_ALLCONFIG=ekiden.config"])
        .args(arguments)
        .env("KBUILD_BUILD_TIMESTAMP", "2030-01-01")
        .env("KBUILD_BUILD_USER", "ekiden")
        .env("KBUILD_BUILD_HOST", "ekiden")
        .env("KBUILD_BUILD_VERSION", "1");
    run_step(&mut command, tree)
}

/// Fails if Linux did not accept an option: it has another name in this version, or depends on an option that is
/// missing.
fn ensure_configured(tree: &Path) -> anyhow::Result<()> {
    let configured = fs::read_to_string(tree.join(".config"))?;
    let options = CONFIG.lines().filter(|line| line.starts_with("CONFIG_"));
    let lost: Vec<&str> = options.filter(|line| !configured.lines().any(|other| other == *line)).collect();
    ensure!(lost.is_empty(), "this version of Linux does not accept the options {}", lost.join(", "));
    Ok(())
}

/// Runs a command until it exits. Its output is shown only if it fails.
fn run_step(command: &mut Command, directory: &Path) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.current_dir(directory).stdin(Stdio::null()).output().with_context(|| name.clone())?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().collect();
    bail!("{name}: {}\n{}", output.status, lines[lines.len().saturating_sub(20)..].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_applies_the_stated_number_of_times_or_fails() {
        let tree = TempDir::for_test();
        let path = tree.path().join("file.c");
        let edit = |find: &str, times| Edit { file: "file.c".into(), find: find.into(), replace: "c".into(), times };
        fs::write(&path, "a b a").unwrap();
        edit("b", 1).apply(tree.path()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a c a");
        let error = edit("a", 1).apply(tree.path()).unwrap_err().to_string();
        assert_eq!(error, "file.c: found \"a\" 2 times in this version of Linux, expected 1");
        edit("a", 2).apply(tree.path()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "c c c");
    }

    /// The added files are copied from the prepared tree, before compilation.
    #[test]
    fn recipe_has_config_edits_added_files_and_license() {
        let work = TempDir::for_test();
        let (tree, recipe) = (work.path().join("tree"), work.path().join("new/recipe"));
        fs::create_dir_all(tree.join(ADDED_DIRECTORY)).unwrap();
        fs::write(tree.join(ADDED_DIRECTORY).join("clock.c"), "clock").unwrap();
        write_recipe(&recipe, &tree).unwrap();
        let text = |name: &str| fs::read_to_string(recipe.join(name)).unwrap();
        assert_eq!((text("config"), text("edits.toml")), (CONFIG.to_owned(), EDITS.to_owned()));
        assert_eq!(text("ekiden/clock.c"), "clock");
        assert!(text("LICENSE").contains("GPL-2.0-only"));
    }

    #[test]
    fn edits_parse_and_makefile_lists_every_added_file() {
        let edits: Edits = toml::from_str(EDITS).unwrap();
        assert!(edits.edit.len() > 10);
        let files = ADDED_FILES.concat();
        let makefile = files.iter().find(|(name, _)| *name == "Makefile").unwrap().1;
        let words: Vec<&str> = makefile.split_whitespace().collect();
        for (name, _) in files.iter().filter(|(name, _)| name.ends_with(".c")) {
            let object = name.replace(".c", ".o");
            assert!(words.contains(&object.as_str()) || words.contains(&object.trim_end_matches(".bpf.o")), "{name}");
        }
    }
}
