//! The program, opened, set and loaded.

use libbpf_rs::{ErrorKind, Object, ObjectBuilder};

use super::maps::{NAMES, SETTINGS, SHARES, SLOTS, WAYS};
use super::settings::{AqmMode, AqmSettings};
use super::{Error, ProgramParams, encode};
use crate::kernel::KernelTypes;
use crate::messages;

static AQM_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/aqm.bpf.o"));
static BACKLOG_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/aqm_backlog.bpf.o"));

/// The kernel's function by which the program reads the structures of the kernel, since Linux 6.2.
const KERNEL_CONTEXT: &str = "bpf_cast_to_kern_ctx";

/// Most lines of the verifier's log in an error.
const LAST_LINES: usize = 8;

/// Loads the program. It is removed when the object is dropped, unless it is attached.
///
/// # Errors
/// Mistakes in the settings, and the kernel's refusal.
pub fn load(settings: &AqmSettings, line: ProgramParams) -> Result<Object, Error> {
    // Without the function, the kernel's refusal names neither the option nor the version of Linux.
    if settings.backlog && !KernelTypes::running().is_some_and(|types| types.has_function(KERNEL_CONTEXT)) {
        return Err(Error::NoKernelContext);
    }
    load_from(if settings.backlog { BACKLOG_OBJECT } else { AQM_OBJECT }, settings, line)
}

/// Loads another program that includes `aqm_program.h`.
///
/// # Errors
/// As [`load`].
pub fn load_from(program: &[u8], settings: &AqmSettings, line: ProgramParams) -> Result<Object, Error> {
    load_with(program, settings, line, |_| None)
}

/// Loads a program with further map contents, by the name of the map.
///
/// # Errors
/// As [`load`].
pub fn load_with(
    program: &[u8],
    settings: &AqmSettings,
    line: ProgramParams,
    more: impl Fn(&str) -> Option<Vec<u8>>,
) -> Result<Object, Error> {
    settings.check()?;
    let value = |name: &str| match name {
        SETTINGS => Some(encode::encode_settings(settings, line, WAYS)),
        other => more(other),
    };
    let (loaded, log) = messages::capture(|| open(program, settings, value));
    loaded.map_err(|error| load_error(&error, &log))
}

fn open(program: &[u8], settings: &AqmSettings, value: impl Fn(&str) -> Option<Vec<u8>>) -> libbpf_rs::Result<Object> {
    let mut object = ObjectBuilder::default().open_memory(program)?;
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        match &*name {
            SLOTS | NAMES => map.set_max_entries(settings.table / WAYS)?,
            SHARES if matches!(settings.mode, AqmMode::Auto { .. }) => {
                map.set_max_entries(encode::auto_params(settings).sets() as u32)?;
            }
            _ => {}
        }
        if let Some(value) = value(&name) {
            map.set_initial_value(&value)?;
        }
    }
    object.load()
}

fn load_error(error: &libbpf_rs::Error, log: &str) -> Error {
    // The verifier also fails with EACCES, which is no lack of privilege.
    if error.kind() == ErrorKind::PermissionDenied && !log.contains("BEGIN PROG LOAD LOG") {
        return Error::NotPermitted("loading the program");
    }
    Error::LoadRejected { source: std::io::Error::other(error.to_string()), log: last_lines(log) }
}

/// The last lines: the verifier names the cause at the end.
fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}
