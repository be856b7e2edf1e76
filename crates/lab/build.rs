//! Builds crates/kernel-emulator into one object file, which the laboratory carries and links into virtual kernels.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};

/// The functions that the kernel calls (kernel/ekiden/emulator.h). The linker keeps these and everything they need.
const ENTRY_POINTS: [&str; 7] = [
    "ekiden_emulation_new",
    "ekiden_emulation_free",
    "ekiden_emulation_request",
    "ekiden_emulation_answer",
    "ekiden_emulation_buffer",
    "ekiden_emulation_receive",
    "ekiden_emulation_advance",
];

/// The sources of what a virtual kernel has of ours: the emulator, changes to Linux, and congestion controls.
const SOURCES: [&str; 6] =
    ["../emulator/src", "../kernel-emulator/src", "../proto/src", "../sys/src", "kernel", "../bpf/src/bpf"];

fn main() {
    let version = version();
    println!("cargo:rustc-env=EKIDEN_EMULATOR_VERSION={version}");
    let out = PathBuf::from(env_var("OUT_DIR"));
    let object = out.join("emulator_library.o");
    println!("cargo:rerun-if-changed=build.rs");
    // User-Mode Linux runs on x86 only.
    if env_var("CARGO_CFG_TARGET_ARCH") == "x86_64" {
        let library = build_library(&out, &version);
        link_object(&library, &object);
    } else {
        std::fs::write(&object, []).expect("OUT_DIR can be written");
    }
}

fn env_var(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo did not set {name}"))
}

/// Returns a digest of [`SOURCES`]: a laboratory uses the kernels that have the same ones.
fn version() -> String {
    let mut digest = Sha256::new();
    let mut add = |path: &Path| {
        println!("cargo:rerun-if-changed={}", path.display());
        digest.update(std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    };
    add(Path::new("../../Cargo.lock"));
    for directory in SOURCES {
        let mut files = Vec::new();
        list_files(Path::new(directory), &mut files);
        files.sort();
        files.iter().for_each(|file| add(file));
    }
    digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn list_files(directory: &Path, files: &mut Vec<PathBuf>) {
    println!("cargo:rerun-if-changed={}", directory.display());
    for entry in std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display())) {
        let path = entry.expect("a directory of the workspace can be read").path();
        if path.is_dir() { list_files(&path, files) } else { files.push(path) }
    }
}

/// Builds the static library with a cargo of its own, because a dependency cannot have another profile and panic
/// strategy than the program.
fn build_library(out: &Path, version: &str) -> PathBuf {
    let workspace = Path::new(&env_var("CARGO_MANIFEST_DIR")).join("../..");
    // OUT_DIR is TARGET/PROFILE/build/ekiden-lab-HASH/out. All profiles share one build of the library.
    let target = out.ancestors().nth(4).expect("OUT_DIR is below the target directory").join("kernel-emulator");
    let cargo_home = env::var("CARGO_HOME").unwrap_or_default();
    run(Command::new(env_var("CARGO"))
        .args(["build", "--locked", "--profile", "kernel", "--package", "ekiden-kernel-emulator", "--target-dir"])
        .arg(&target)
        .current_dir(&workspace)
        // The same source gives the same library in every directory.
        .env(
            "RUSTFLAGS",
            format!("--remap-path-prefix={}=/src --remap-path-prefix={cargo_home}=/cargo", workspace.display()),
        )
        .env("EKIDEN_EMULATOR_VERSION", version)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER"));
    target.join("kernel/libekiden_kernel_emulator.a")
}

fn link_object(library: &Path, object: &Path) {
    let roots = ENTRY_POINTS.iter().map(|name| format!("-Wl,-u,{name}"));
    run(Command::new("cc")
        .args(["-r", "-nostdlib", "-Wl,--gc-sections"])
        .args(roots)
        .arg(library)
        .arg("-o")
        .arg(object));
    // Sections of bitcode, which other linkers than LLVM trip over.
    run(Command::new("strip").args(["--strip-debug", "-R", ".llvmbc", "-R", ".llvmcmd"]).arg(object));
}

fn run(command: &mut Command) {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{name}: {status}"),
        Err(error) => panic!("{name}: {error}"),
    }
}
