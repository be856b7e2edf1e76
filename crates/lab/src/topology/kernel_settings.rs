//! Kernel settings: sysctls of a host, and parameters of modules, which apply to the whole machine. Every setting is
//! read back for verification.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use super::ModuleParameters;
use crate::virtual_time::guest;

/// Sets a sysctl of the network namespace of this thread.
///
/// # Errors
/// The namespace has no such sysctl, or the kernel does not accept the value.
pub fn set_sysctl(key: &str, value: &str) -> anyhow::Result<()> {
    let file = PathBuf::from("/proc/sys").join(key.replace('.', "/"));
    let now = write_and_read(&file, value).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => anyhow::anyhow!("this kernel has no such sysctl in a network namespace"),
        io::ErrorKind::PermissionDenied => anyhow::anyhow!("refused: a network namespace cannot change this sysctl"),
        _ => anyhow::Error::new(error).context("refused"),
    })?;
    ensure!(now.split_whitespace().eq(value.split_whitespace()), "the kernel set {now:?} instead");
    Ok(())
}

/// Sets parameters of modules and of built-in code.
///
/// # Errors
/// The lab does not run in virtual time, or the kernel has no such parameter or does not accept the value.
pub fn set_module_parameters(modules: &ModuleParameters) -> anyhow::Result<()> {
    ensure!(
        modules.is_empty() || guest::is_in_machine(),
        "[module] sets parameters of the whole machine: such a lab runs only in virtual time (--virtual)"
    );
    for (module, parameters) in modules {
        for (parameter, value) in parameters {
            set_module_parameter(module, parameter, value)
                .with_context(|| format!("module {module:?}: {parameter} = {value:?}"))?;
        }
    }
    Ok(())
}

fn set_module_parameter(module: &str, parameter: &str, value: &str) -> anyhow::Result<()> {
    let file = Path::new("/sys/module").join(module).join("parameters").join(parameter);
    let now = write_and_read(&file, value).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => anyhow::anyhow!("this kernel has no such parameter"),
        _ => anyhow::Error::new(error).context("refused"),
    })?;
    // The kernel shows truth values as letters.
    let is_set = matches!((now.as_str(), value), ("Y", "1") | ("N", "0")) || now == value;
    ensure!(is_set, "the kernel set {now:?} instead");
    Ok(())
}

/// Writes a file of the kernel, which must exist, and returns its text afterwards.
fn write_and_read(file: &Path, value: &str) -> io::Result<String> {
    File::options().write(true).open(file)?.write_all(value.as_bytes())?;
    Ok(fs::read_to_string(file)?.trim().to_owned())
}
