//! A request to set an option, and the read-back of the value that the kernel holds.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ekiden_proto::units::{Bytes, Span};
use libc::c_int;

use crate::option::get;

/// The unit in which an integer option is displayed.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Plain,
    Bytes,
    Micros,
    Millis,
    Seconds,
}

impl Unit {
    fn show(self, value: c_int) -> String {
        let number = u64::from(value.unsigned_abs());
        match self {
            Self::Plain => number.to_string(),
            Self::Bytes => Bytes(number).to_string(),
            Self::Micros => Span(Duration::from_micros(number)).to_string(),
            Self::Millis => Span(Duration::from_millis(number)).to_string(),
            Self::Seconds => Span(Duration::from_secs(number)).to_string(),
        }
    }
}

/// A completed request, whose value can be read back.
pub(super) enum Request {
    Integer { level: c_int, name: c_int, requested: c_int, unit: Unit },
    Text { name: c_int, requested: String },
    Wide { level: c_int, name: c_int, requested: u64 },
    Done,
}

impl Request {
    /// Returns `None` if the kernel holds the requested value, otherwise the kernel's value.
    pub(super) fn read_back(&self, socket: BorrowedFd<'_>) -> io::Result<Option<String>> {
        let differs = |is_equal: bool, shown: &dyn fmt::Display| (!is_equal).then(|| shown.to_string());
        match self {
            Self::Done => Ok(None),
            Self::Integer { level, name, requested, unit } => {
                let actual: c_int = get(socket, *level, *name)?;
                // The kernel doubles buffer sizes to allow for its bookkeeping (socket(7)).
                let doubled = *level == libc::SOL_SOCKET && matches!(*name, libc::SO_RCVBUF | libc::SO_SNDBUF);
                let actual = if doubled { actual / 2 } else { actual };
                Ok(differs(actual == *requested, &unit.show(actual)))
            }
            Self::Text { name, requested } => {
                let actual: [u8; 16] = get(socket, libc::IPPROTO_TCP, *name)?;
                let actual = String::from_utf8_lossy(&actual);
                let actual = actual.trim_end_matches('\0');
                Ok(differs(actual == requested, &actual))
            }
            Self::Wide { level, name, requested } => {
                let actual: u64 = get(socket, *level, *name)?;
                Ok(differs(actual == *requested, &format!("{actual}B/s")))
            }
        }
    }
}
