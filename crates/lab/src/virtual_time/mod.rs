//! The laboratory in virtual time: a virtual machine in which processes take no time, and the clock jumps to the next
//! timer when all of them wait.
//!
//! The machine is a kernel built for User-Mode Linux, and so a normal process of an ordinary user. [`build`] makes the
//! kernel from a source that [`source`] finds, [`kernel`] finds the built ones, [`machine`] boots one of them on the
//! files of the host, [`clock`] reads its time from outside, and [`guest`] is the first process inside.

pub mod build;
pub mod clock;
pub mod guest;
pub mod kernel;
pub mod machine;
pub mod source;
