//! Safe wrappers of system calls, and the only package with `unsafe` code. Modules are named after man pages. Each
//! function returns the error of the kernel unchanged, and the caller decides how to handle it.

pub mod adjtimex;
pub mod clock;
pub mod congestion;
pub mod ethtool;
pub mod fd_passing;
pub mod init;
pub mod ktls;
pub mod link;
#[cfg(test)]
mod namespace;
#[doc(hidden)]
pub mod netlink;
pub mod netns;
pub mod nfqueue;
pub mod notify;
mod option;
pub mod origdst;
pub mod outq;
pub mod pacing;
pub mod packet;
pub mod poll;
pub mod process;
pub mod queued;
pub mod recv;
pub mod route;
pub mod signal;
pub mod sock_diag;
pub mod sockopt;
pub mod splice;
pub mod tc;
pub mod tcp_info;
pub mod thread;
pub mod timer;
pub mod transparent;
pub mod tun;
pub mod tuned;
pub mod udp;
