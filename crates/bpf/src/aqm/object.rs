//! The program, opened, set and loaded.

use std::path::Path;

use libbpf_rs::{ErrorKind, Object, ObjectBuilder};

use super::maps::{SETTINGS, SLOTS, WAYS};
use super::settings::Settings;
use super::{Error, encode};
use crate::chatter;
use crate::kernel::BTF;

static COUNTED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/aqm.bpf.o"));
static BACKLOG: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/aqm_backlog.bpf.o"));

/// Loads the program. It is gone when the object is dropped, unless it hangs somewhere.
pub(super) fn load(settings: &Settings, key: u64) -> Result<Object, Error> {
    settings.check()?;
    if settings.backlog && !Path::new(BTF).exists() {
        return Err(Error::NoBtf);
    }
    let (loaded, said) = chatter::during(|| open(settings, key));
    loaded.map_err(|error| refused(&error, &said))
}

fn open(settings: &Settings, key: u64) -> libbpf_rs::Result<Object> {
    let mut object = ObjectBuilder::default().open_memory(if settings.backlog { BACKLOG } else { COUNTED })?;
    for mut map in object.maps_mut() {
        match map.name().to_str() {
            Some(SLOTS) => map.set_max_entries(settings.table / WAYS)?,
            Some(SETTINGS) => map.set_initial_value(&encode::settings(settings, key, WAYS))?,
            _ => {}
        }
    }
    object.load()
}

fn refused(error: &libbpf_rs::Error, said: &str) -> Error {
    // The verifier says EACCES, too, and that is not about who asks.
    if error.kind() == ErrorKind::PermissionDenied && !said.contains("BEGIN PROG LOAD LOG") {
        return Error::NotPermitted("loading the program");
    }
    Error::Refused { source: std::io::Error::other(error.to_string()), log: said.trim_end().to_owned() }
}
