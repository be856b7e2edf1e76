//! The laboratory in virtual time: a virtual machine in which processes take no time, and the clock jumps to the next
//! timer when all of them wait.
//!
//! The machine is a kernel built for User-Mode Linux, and thus a normal process of an ordinary user. [`source`] finds
//! the source of Linux, [`build`] builds the kernel, [`kernel`] lists the built kernels, [`machine`] boots a kernel on
//! the files of the host, [`clock`] reads its time from the host, and [`guest`] is the first process inside.

pub mod build;
pub mod clock;
pub mod guest;
pub mod kernel;
pub mod machine;
pub mod source;
