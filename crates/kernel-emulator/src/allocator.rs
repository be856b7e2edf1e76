//! Memory from the C library of the host. User-Mode Linux replaces `malloc` by the kernel's allocator, which has no
//! blocks of megabytes in the context of an interrupt.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_void};

/// Alignment that `malloc` guarantees on x86-64, in bytes.
const MALLOC_ALIGNMENT: usize = 16;

unsafe extern "C" {
    // The linker's names of the functions that `--wrap` replaces (ld(1)).
    fn __real_malloc(size: usize) -> *mut c_void;
    fn __real_free(memory: *mut c_void);
    fn realloc(memory: *mut c_void, size: usize) -> *mut c_void;
    fn posix_memalign(memory: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
}

struct HostAllocator;

// SAFETY: blocks come from malloc(3) or posix_memalign(3), which guarantee size and alignment, and both are freed by
// free(3). The kernel runs on one thread of the host.
unsafe impl GlobalAlloc for HostAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MALLOC_ALIGNMENT {
            // SAFETY: malloc takes any size.
            return unsafe { __real_malloc(layout.size()) }.cast();
        }
        let mut memory = std::ptr::null_mut();
        // SAFETY: an alignment above 16 is a power of two and a multiple of the size of a pointer.
        let result = unsafe { posix_memalign(&raw mut memory, layout.align(), layout.size()) };
        if result == 0 { memory.cast() } else { std::ptr::null_mut() }
    }

    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: the block is from `alloc` or `realloc`.
        unsafe { __real_free(memory.cast()) };
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= MALLOC_ALIGNMENT {
            // SAFETY: the block is from `alloc` or `realloc`.
            return unsafe { realloc(memory.cast(), size) }.cast();
        }
        // SAFETY: the caller guarantees that the size is valid for the alignment.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both blocks have at least this many bytes, and the new one is disjoint.
            unsafe { std::ptr::copy_nonoverlapping(memory, new, layout.size().min(size)) };
            // SAFETY: the block is from `alloc`.
            unsafe { self.dealloc(memory, layout) };
        }
        new
    }
}

#[global_allocator]
static ALLOCATOR: HostAllocator = HostAllocator;
