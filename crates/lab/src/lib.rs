//! The laboratory: emulates long network paths on one machine, packet by packet, and runs experiments on them.
//!
//! From the bottom up: the [`emulator`] drives the links of `ekiden-emulator` against the real clock, and a [`capture`]
//! writes their packets as [`pcapng`]. A [`topology`] has the hosts and links of a lab file. A [`check`] measures every
//! link with code independent of the emulator. [`program`]s are the real servers, proxies and clients. An
//! [`experiment`] defines factors, levels and repetitions. [`stats`] and [`report`] evaluate the results.

pub mod capture;
pub mod check;
pub mod emulator;
pub mod experiment;
pub mod pcapng;
pub mod program;
pub mod reference;
pub mod report;
pub mod stats;
pub mod temp_dir;
pub mod topology;
pub mod virtual_time;
pub mod warnings;
