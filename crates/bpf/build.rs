//! Compiles every `src/bpf/*.bpf.c` into an object that the crate carries, and those of `tests/bpf/` for its tests. Needs
//! clang; nothing of this is needed where the binary runs.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: [&str; 2] = ["src/bpf", "tests/bpf"];

fn main() {
    println!("cargo:rerun-if-env-changed=CLANG");
    SOURCES.into_iter().for_each(compile_all);
}

fn compile_all(folder: &str) {
    println!("cargo:rerun-if-changed={folder}");
    let headers = env_var("DEP_BPF_INCLUDE");
    let out = PathBuf::from(env_var("OUT_DIR"));
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    for entry in entries {
        let source = entry.unwrap_or_else(|error| panic!("{folder}: {error}")).path();
        if source.to_str().is_some_and(|name| name.ends_with(".bpf.c")) {
            compile(&source, Path::new(&headers), &out);
        }
    }
}

fn env_var(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo did not set {name}"))
}

fn compile(source: &Path, headers: &Path, out: &Path) {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let name = source.file_stem().and_then(OsStr::to_str).expect("the name ends in .bpf.c");
    let object = out.join(format!("{name}.o"));
    let status = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-c"])
        .arg("-isystem")
        .arg(headers)
        .arg(source)
        .arg("-o")
        .arg(&object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang}: {} did not compile ({status})", source.display()),
        Err(error) => panic!(
            "{clang}: {error}. Install it (scripts/setup build), name it with CLANG=..., or build ekiden without what it \
             puts into the kernel: cargo build --no-default-features"
        ),
    }
}
