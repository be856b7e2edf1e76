//! The pipes of one thread. A flow borrows a pipe while bytes are in it. An empty pipe returns to the pool; a pipe that
//! still holds bytes is closed, because its bytes belong to no other session.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use ekiden_sys::splice::Pipe;

/// Time without new pipes after the kernel has failed to create one; sessions copy meanwhile.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Counters of the pipes of one thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct PipeCounts {
    /// Number of open pipes, idle or borrowed.
    pub open: usize,
    /// Number of open pipes that are idle.
    pub idle: usize,
    /// Number of times that a flow had to copy because no pipe was available.
    pub fallbacks: u64,
}

/// A bounded pool of pipes.
#[derive(Debug)]
pub struct PipePool {
    idle: RefCell<Vec<Pipe>>,
    open_count: Cell<usize>,
    most: usize,
    /// Minimum number of idle pipes since the last trim: this number of pipes was not needed.
    unneeded: Cell<usize>,
    refused_at: Cell<Option<Instant>>,
    fallbacks: Cell<u64>,
}

impl PipePool {
    /// Creates a pool of at most `most` pipes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            idle: RefCell::default(),
            open_count: Cell::new(0),
            most,
            unneeded: Cell::new(0),
            refused_at: Cell::new(None),
            fallbacks: Cell::new(0),
        }
    }

    /// Takes an empty pipe from the pool; `None` if no pipe is available and the caller has to copy.
    pub fn take(&self) -> Option<PooledPipe<'_>> {
        let pipe = self.idle.borrow_mut().pop().or_else(|| self.create());
        self.unneeded.set(self.unneeded.get().min(self.idle.borrow().len()));
        if pipe.is_none() {
            self.fallbacks.set(self.fallbacks.get() + 1);
        }
        pipe.map(|pipe| PooledPipe { pool: self, pipe: Some(pipe), pending: 0 })
    }

    fn create(&self) -> Option<Pipe> {
        let resting = self.refused_at.get().is_some_and(|at| at.elapsed() < RETRY_AFTER);
        if resting || self.open_count.get() >= self.most {
            return None;
        }
        match Pipe::new() {
            Ok(pipe) => {
                self.open_count.set(self.open_count.get() + 1);
                Some(pipe)
            }
            Err(_) => {
                self.refused_at.set(Some(Instant::now()));
                None
            }
        }
    }

    /// Closes as many pipes as were idle during the whole time since the last call.
    pub fn trim(&self) {
        let mut idle = self.idle.borrow_mut();
        let surplus = self.unneeded.get().min(idle.len());
        idle.drain(..surplus);
        self.open_count.set(self.open_count.get() - surplus);
        self.unneeded.set(idle.len());
    }

    /// Returns the counters of the pool.
    #[must_use]
    pub fn counts(&self) -> PipeCounts {
        PipeCounts { open: self.open_count.get(), idle: self.idle.borrow().len(), fallbacks: self.fallbacks.get() }
    }
}

/// A pipe that a flow has borrowed from the pool; the drop returns it if it is empty, and closes it otherwise.
pub struct PooledPipe<'a> {
    pool: &'a PipePool,
    pipe: Option<Pipe>,
    pending: usize,
}

impl PooledPipe<'_> {
    fn pipe(&self) -> &Pipe {
        self.pipe.as_ref().expect("invariant: the pipe exists until drop")
    }

    /// Capacity of the pipe in bytes.
    pub fn capacity(&self) -> usize {
        self.pipe().capacity()
    }

    /// Returns whether the pipe holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.pending == 0
    }

    /// Moves up to `most` bytes from `socket` into the empty pipe; 0 means end of stream.
    ///
    /// # Errors
    /// As splice(2).
    pub fn fill(&mut self, socket: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
        debug_assert!(self.is_empty(), "would-block is ambiguous while the pipe holds bytes");
        self.pending = self.pipe().fill(socket, most)?;
        Ok(self.pending)
    }

    /// Moves bytes from the pipe into `socket` until the socket is full, and returns their number.
    ///
    /// # Errors
    /// As splice(2).
    pub fn drain(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let moved = self.pipe().drain(socket, self.pending)?;
        self.pending -= moved;
        Ok(moved)
    }
}

impl Drop for PooledPipe<'_> {
    fn drop(&mut self) {
        match self.pipe.take() {
            Some(pipe) if self.pending == 0 => self.pool.idle.borrow_mut().push(pipe),
            _ => self.pool.open_count.set(self.pool.open_count.get() - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_testing::tcp_pair;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    #[test]
    fn only_empty_pipes_return_to_the_pool() {
        let pool = PipePool::new(2);
        let (mut writer, reader) = tcp_pair();
        writer.write_all(b"bytes").unwrap();
        let mut pipe = pool.take().unwrap();
        assert_eq!(pipe.fill(reader.as_fd(), 100).unwrap(), 5);
        drop(pipe);
        assert_eq!((pool.counts().open, pool.counts().idle), (0, 0), "a pipe with bytes in it was kept");

        writer.write_all(b"more").unwrap();
        let mut pipe = pool.take().unwrap();
        pipe.fill(reader.as_fd(), 100).unwrap();
        pipe.drain(reader.as_fd()).unwrap();
        drop(pipe);
        assert_eq!((pool.counts().open, pool.counts().idle), (1, 1));
        let mut echoed = [0; 4];
        writer.read_exact(&mut echoed).unwrap();
        assert_eq!(&echoed, b"more");
    }

    #[test]
    fn the_pool_is_bounded_and_counts_fallbacks() {
        let pool = PipePool::new(1);
        let first = pool.take().unwrap();
        assert!(pool.take().is_none());
        assert_eq!(pool.counts().fallbacks, 1);
        drop(first);
        assert!(pool.take().is_some());
    }

    #[test]
    fn unused_pipes_are_closed() {
        let pool = PipePool::new(8);
        drop((pool.take(), pool.take(), pool.take()));
        assert_eq!(pool.counts().open, 3);
        pool.trim();
        drop(pool.take());
        pool.trim();
        assert_eq!(pool.counts().open, 1, "one pipe was used since the last trim");
        pool.trim();
        assert_eq!((pool.counts().open, pool.counts().idle), (0, 0));
    }
}
