//! In what pieces the bytes of a flow go into a section that is tuned.

use std::os::fd::AsFd;
use std::task::{Context, Poll};
use std::time::Instant;

use ekiden_proto::tuning::{Gather, Grain};
use ekiden_sys::queued::set_receive_lowat;
use tokio::net::TcpStream;

use crate::pump::pause::Pause;

/// What has to arrive while pieces gather until the kernel wakes us for it, in bytes; of an end of stream it tells at once.
const ENOUGH: u32 = 32 * 1024;

/// What is known of them.
#[derive(Debug)]
pub struct Shape<'a> {
    from: &'a TcpStream,
    began: Instant,
    grain: Grain,
    gather: Gather,
    rest: Option<Rest<'a>>,
}

/// Nobody wakes us for each piece that arrives: that would cost more than the piece.
#[derive(Debug)]
struct Rest<'a> {
    pause: Pause,
    from: &'a TcpStream,
}

impl<'a> Rest<'a> {
    fn begin(pause: Pause, from: &'a TcpStream) -> Self {
        // Fails only when the socket is dead, and then there is nothing to gather.
        let _ = set_receive_lowat(from.as_fd(), ENOUGH);
        Self { pause, from }
    }
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        let _ = set_receive_lowat(self.from.as_fd(), 1);
    }
}

impl<'a> Shape<'a> {
    /// Nothing has come yet.
    pub fn new(from: &'a TcpStream) -> Self {
        Self { from, began: Instant::now(), grain: Grain::default(), gather: Gather::default(), rest: None }
    }

    /// Most plaintext of the next record.
    pub fn room(&mut self, most: usize) -> usize {
        self.grain.room(self.began.elapsed(), most)
    }

    /// Whether what has arrived is taken now, or waits for more; `answers` is what the other direction has moved.
    pub fn poll(&mut self, cx: &mut Context<'_>, answers: u64) -> Poll<()> {
        if self.rest.as_ref().is_some_and(|rest| !rest.pause.is_over()) {
            return Poll::Pending;
        }
        if self.rest.take().is_none() && self.gather.waits(self.began.elapsed(), answers) {
            self.rest = Pause::begin(cx).map(|pause| Rest::begin(pause, self.from));
        }
        if self.rest.is_some() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// So many bytes were taken.
    pub fn took(&mut self, bytes: usize, answers: u64) {
        self.grain.took(bytes);
        self.gather.took(self.began.elapsed(), bytes, answers);
    }
}
