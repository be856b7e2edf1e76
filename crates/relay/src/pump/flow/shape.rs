//! In what pieces the bytes of a flow go into a section that is tuned.

use std::task::{Context, Poll};
use std::time::Instant;

use ekiden_proto::tuning::{Gather, Grain};

use crate::pump::pause::Pause;

/// What is known of them.
#[derive(Debug)]
pub struct Shape {
    began: Instant,
    grain: Grain,
    gather: Gather,
    pause: Option<Pause>,
}

impl Shape {
    /// Nothing has come yet.
    pub fn new() -> Self {
        Self { began: Instant::now(), grain: Grain::default(), gather: Gather::default(), pause: None }
    }

    /// Most plaintext of the next record.
    pub fn room(&mut self, most: usize) -> usize {
        self.grain.room(self.began.elapsed(), most)
    }

    /// Whether what has arrived is taken now, or waits for more; `answers` is what the other direction has moved.
    pub fn poll(&mut self, cx: &mut Context<'_>, answers: u64) -> Poll<()> {
        match self.pause {
            Some(pause) if !pause.is_over() => return Poll::Pending,
            Some(_) => {}
            None if self.gather.waits(self.began.elapsed(), answers) => {
                self.pause = Pause::begin(cx);
                if self.pause.is_some() {
                    return Poll::Pending;
                }
            }
            None => {}
        }
        Poll::Ready(())
    }

    /// So many bytes were taken.
    pub fn took(&mut self, bytes: usize, answers: u64) {
        self.pause = None;
        self.grain.took(bytes);
        self.gather.took(self.began.elapsed(), bytes, answers);
    }
}
