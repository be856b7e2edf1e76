//! Puts the program where packets leave, and takes it away again.
//!
//! Whether the clsact was made for it is in the filter's name, so that a later process knows whether to remove that, too.
//! The handle is always the same, so that there is never more than one, whoever comes at the same time.

use std::io;
use std::os::fd::AsFd;

use ekiden_sys::tc;

use super::settings::Settings;
use super::{EACCES, EEXIST, ENOENT, EPERM, Error, Line, PROGRAM, object};

/// Among the first that are asked: the program lets everything else have its say, which not everything else does.
pub(super) const PREFERENCE: u16 = 1;

/// The filter's handle.
const HANDLE: u32 = 0x00eb_1de0;

/// The filter's name where the clsact was made for it; otherwise it is [`PROGRAM`].
const MADE: &str = "ekiden_aqm+clsact";

/// Queueing disciplines of which `--backlog` would never see anything waiting: they have no queue, or count it elsewhere.
const SILENT: [&str; 4] = ["noqueue", "mq", "pfifo_fast", "mqprio"];

/// What hangs at an interface.
pub(super) struct Place {
    /// Whether the clsact was made for it.
    made: bool,
    /// The id of the program.
    pub(super) program: u32,
}

/// Manages what leaves by an interface. It goes on after the process has ended.
///
/// # Errors
/// Each with what to do; then everything is as it was.
pub fn attach(name: &str, settings: &Settings, key: u64, replace: bool) -> Result<(), Error> {
    settings.check()?;
    let interface = index(name)?;
    let there = find(interface)?;
    if there.is_some() && !replace {
        return Err(Error::Already(name.to_owned()));
    }
    if settings.backlog {
        has_backlog(interface, name)?;
    }
    let ethernet = tc::has_ethernet(name).map_err(Error::of("asking for the kind of link"))?;
    let object = object::load(settings, Line { key, ethernet })?;
    let program = object.progs().next().expect("invariant: the object has a program");
    let made = match &there {
        Some(place) => place.made,
        None => tc::make_clsact(interface).map_err(no_clsact)?,
    };
    let filter = if made { MADE } else { PROGRAM };
    tc::attach(interface, PREFERENCE, HANDLE, program.as_fd(), filter, replace).map_err(|error| {
        if made && there.is_none() {
            // Of two errors, the first is the one to tell.
            let _ = tidy(interface);
        }
        not_attached(error, name)
    })
}

/// Lets packets leave as if nothing had ever been there.
///
/// # Errors
/// [`Error::NotThere`], and the kernel's.
pub fn detach(name: &str) -> Result<(), Error> {
    let interface = index(name)?;
    let place = find(interface)?.ok_or_else(|| Error::NotThere(name.to_owned()))?;
    tc::detach(interface, PREFERENCE, HANDLE).map_err(Error::of("removing the filter"))?;
    if place.made {
        tidy(interface).map_err(Error::of("removing the clsact"))?;
    }
    Ok(())
}

/// Removes the clsact that was made, unless somebody else has come to use it.
fn tidy(interface: u32) -> io::Result<()> {
    if tc::egress(interface)?.is_empty() && tc::ingress(interface)?.is_empty() {
        return tc::remove_clsact(interface);
    }
    Ok(())
}

/// The index of an interface.
pub(super) fn index(name: &str) -> Result<u32, Error> {
    tc::index(name).map_err(|_| Error::NoInterface(name.to_owned()))
}

/// What of ours hangs at an interface.
pub(super) fn find(interface: u32) -> Result<Option<Place>, Error> {
    let filters = tc::egress(interface).map_err(Error::of("asking what hangs at the interface"))?;
    Ok(filters.into_iter().find_map(|filter| match filter.program {
        Some((name, program)) if filter.handle == HANDLE && (name == PROGRAM || name == MADE) => {
            Some(Place { made: name == MADE, program })
        }
        _ => None,
    }))
}

fn has_backlog(interface: u32, name: &str) -> Result<(), Error> {
    let kind = tc::root(interface).map_err(Error::of("asking for the queueing discipline"))?;
    let kind = kind.unwrap_or_else(|| "noqueue".to_owned());
    if SILENT.contains(&kind.as_str()) {
        return Err(Error::NoBacklog { interface: name.to_owned(), kind });
    }
    Ok(())
}

fn no_clsact(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(ENOENT) => Error::Lacking { what: "clsact", option: "CONFIG_NET_SCH_INGRESS", module: "sch_ingress" },
        _ => Error::of("making a clsact")(error),
    }
}

fn not_attached(error: io::Error, name: &str) -> Error {
    match error.raw_os_error() {
        Some(EEXIST) => Error::Already(name.to_owned()),
        Some(ENOENT) => Error::Lacking { what: "BPF filter", option: "CONFIG_NET_CLS_BPF", module: "cls_bpf" },
        Some(EPERM | EACCES) => Error::NotPermitted("attaching the program"),
        _ => Error::Kernel {
            what: "attaching the program (if a filter of another kind has preference 1, `tc filter show dev ... egress` \
                   lists it: give it another)",
            source: error,
        },
    }
}
