//! What the kernel has to be told so that packets of other hosts come to us: nftables and policy routing.

pub mod marks;

pub use marks::Marks;
