//! Attaches the program to the egress of an interface, and detaches it.
//!
//! The filter's name tells whether the clsact was created for it, so that a later process knows whether to remove that,
//! too. The handle is constant, so that concurrent processes cannot attach two.

use std::io;
use std::os::fd::AsFd;

use ekiden_sys::tc;

use super::settings::AqmSettings;
use super::{EACCES, EEXIST, ENOENT, EPERM, Error, PROGRAM, ProgramParams, object};

/// Among the first that are asked: the program lets everything else have its say, which not everything else does.
pub(super) const PREFERENCE: u16 = 1;

/// The filter's handle.
const FILTER_HANDLE: u32 = 0x00eb_1de0;

/// The filter's name where the clsact was made for it; otherwise it is [`PROGRAM`].
const PROGRAM_WITH_CLSACT: &str = "ekiden_aqm+clsact";

/// Queueing disciplines of which `--backlog` would never see anything waiting: they have no queue, or count it elsewhere.
const UNCOUNTED_QDISCS: [&str; 4] = ["noqueue", "mq", "pfifo_fast", "mqprio"];

/// A program attached to an interface.
pub(super) struct Attachment {
    /// Whether the clsact was made for it.
    owns_clsact: bool,
    /// The id of the program.
    pub(super) program: u32,
}

/// Manages the egress queue of an interface, also after the end of the process.
///
/// # Errors
/// Each with its remedy; the interface is then unchanged.
pub fn attach(name: &str, settings: &AqmSettings, key: u64, replace: bool) -> Result<(), Error> {
    settings.check()?;
    let interface = interface_index(name)?;
    let existing = find_attachment(interface)?;
    if existing.is_some() && !replace {
        return Err(Error::AlreadyAttached(name.to_owned()));
    }
    if settings.backlog {
        check_backlog(interface, name)?;
    }
    let ethernet = tc::has_ethernet(name).map_err(Error::from_io("reading the link type"))?;
    let object = object::load(settings, ProgramParams { hash_key: key, ethernet })?;
    let program = object.progs().next().expect("invariant: the object has a program");
    let owns_clsact = match &existing {
        Some(attachment) => attachment.owns_clsact,
        None => tc::create_clsact(interface).map_err(clsact_error)?,
    };
    let filter = if owns_clsact { PROGRAM_WITH_CLSACT } else { PROGRAM };
    tc::attach_egress(interface, PREFERENCE, FILTER_HANDLE, program.as_fd(), filter, replace).map_err(|error| {
        if owns_clsact && existing.is_none() {
            // Of two errors, the first is reported.
            let _ = remove_unused_clsact(interface);
        }
        attach_error(error, name)
    })
}

/// Lets packets leave as if nothing had ever been there.
///
/// # Errors
/// [`Error::NotAttached`], and the kernel's.
pub fn detach(name: &str) -> Result<(), Error> {
    let interface = interface_index(name)?;
    let place = find_attachment(interface)?.ok_or_else(|| Error::NotAttached(name.to_owned()))?;
    tc::detach_egress(interface, PREFERENCE, FILTER_HANDLE).map_err(Error::from_io("removing the filter"))?;
    if place.owns_clsact {
        remove_unused_clsact(interface).map_err(Error::from_io("removing the clsact queueing discipline"))?;
    }
    Ok(())
}

/// Removes the clsact that ekiden created, unless another program uses it.
fn remove_unused_clsact(interface: u32) -> io::Result<()> {
    if tc::egress_filters(interface)?.is_empty() && tc::ingress_filters(interface)?.is_empty() {
        return tc::remove_clsact(interface);
    }
    Ok(())
}

/// The index of an interface.
pub(super) fn interface_index(name: &str) -> Result<u32, Error> {
    tc::index(name).map_err(|_| Error::NoInterface(name.to_owned()))
}

/// The attachment of ekiden at an interface.
pub(super) fn find_attachment(interface: u32) -> Result<Option<Attachment>, Error> {
    let filters = tc::egress_filters(interface).map_err(Error::from_io("listing the filters of the interface"))?;
    Ok(filters.into_iter().find_map(|filter| match filter.program {
        Some((name, program)) if filter.handle == FILTER_HANDLE && (name == PROGRAM || name == PROGRAM_WITH_CLSACT) => {
            Some(Attachment { owns_clsact: name == PROGRAM_WITH_CLSACT, program })
        }
        _ => None,
    }))
}

fn check_backlog(interface: u32, name: &str) -> Result<(), Error> {
    let kind = tc::root_qdisc(interface).map_err(Error::from_io("reading the queueing discipline"))?;
    let kind = kind.unwrap_or_else(|| "noqueue".to_owned());
    if UNCOUNTED_QDISCS.contains(&kind.as_str()) {
        return Err(Error::NoBacklog { interface: name.to_owned(), kind });
    }
    Ok(())
}

fn clsact_error(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(ENOENT) => {
            Error::MissingFeature { what: "clsact", option: "CONFIG_NET_SCH_INGRESS", module: "sch_ingress" }
        }
        _ => Error::from_io("creating the clsact queueing discipline")(error),
    }
}

fn attach_error(error: io::Error, name: &str) -> Error {
    match error.raw_os_error() {
        Some(EEXIST) => Error::AlreadyAttached(name.to_owned()),
        Some(ENOENT) => Error::MissingFeature { what: "BPF filter", option: "CONFIG_NET_CLS_BPF", module: "cls_bpf" },
        Some(EPERM | EACCES) => Error::NotPermitted("attaching the program"),
        _ => Error::Kernel {
            what: "attaching the program (if `tc filter show dev ... egress` lists a filter of another kind with \
                   preference 1, change its preference)",
            source: error,
        },
    }
}
