//! One buffer per thread for bytes that are read and written in the same breath. What could not be written is kept by
//! the flow in a buffer of just that size, so a thousand idle sessions need none.

use std::cell::RefCell;

use ekiden_proto::wire::section::record::{HEADER_LENGTH, TAG_LENGTH};

/// Large enough that copying costs about as little as it can, small enough that what a slow reader leaves behind in a
/// session is bounded by it: 64 KiB, or a record of about as much with all that belongs to it.
const SIZE: usize = HEADER_LENGTH + MAX_PLAIN + TAG_LENGTH;

/// Most that is read at once where it leaves as it is, in bytes.
pub const MAX_PLAIN: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SIZE].into_boxed_slice());
}

/// Lends the thread's buffer for the length of one call.
pub fn with<T>(use_it: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| use_it(scratch))
}
