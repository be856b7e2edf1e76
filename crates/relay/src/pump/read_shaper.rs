//! Shapes the reads of a flow into a tuned section: the size of records, and the gathering of small pieces.

use std::os::fd::AsFd;
use std::task::{Context, Poll};
use std::time::Instant;

use ekiden_proto::tuning::{RecordSizer, WriteCoalescer};
use ekiden_sys::queued::set_receive_lowat;
use tokio::net::TcpStream;

use super::pause::GatherPause;

/// Receive low-water mark (`SO_RCVLOWAT`, socket(7)) while small pieces are gathered, in bytes; an end of stream wakes
/// the flow at once.
const WAKE_BYTES: u32 = 32 * 1024;

/// Decides the size and the time of the next read.
#[derive(Debug)]
pub struct ReadShaper<'a> {
    from: &'a TcpStream,
    started_at: Instant,
    record_sizer: RecordSizer,
    coalescer: WriteCoalescer,
    current_pause: Option<GatheringPause<'a>>,
}

/// A pause in reading. The low-water mark avoids a wakeup for each small piece, which would cost more than the transfer
/// of the piece.
#[derive(Debug)]
struct GatheringPause<'a> {
    pause: GatherPause,
    from: &'a TcpStream,
}

impl<'a> GatheringPause<'a> {
    fn new(pause: GatherPause, from: &'a TcpStream) -> Self {
        // Fails only when the socket is dead, and then there is nothing to gather.
        let _ = set_receive_lowat(from.as_fd(), WAKE_BYTES);
        Self { pause, from }
    }
}

impl Drop for GatheringPause<'_> {
    fn drop(&mut self) {
        let _ = set_receive_lowat(self.from.as_fd(), 1);
    }
}

impl<'a> ReadShaper<'a> {
    /// Creates the shaper of a flow that has read no byte.
    pub fn new(from: &'a TcpStream) -> Self {
        Self {
            from,
            started_at: Instant::now(),
            record_sizer: RecordSizer::default(),
            coalescer: WriteCoalescer::default(),
            current_pause: None,
        }
    }

    /// Returns the maximum plaintext of the next record, at most `most` bytes.
    pub fn read_limit(&mut self, most: usize) -> usize {
        self.record_sizer.next_size(self.started_at.elapsed(), most)
    }

    /// Ready when the flow is to read now; `answers` is the total number of bytes of the other direction.
    pub fn poll(&mut self, cx: &mut Context<'_>, answers: u64) -> Poll<()> {
        if self.current_pause.as_ref().is_some_and(|current| !current.pause.is_over()) {
            return Poll::Pending;
        }
        if self.current_pause.take().is_none() && self.coalescer.should_wait(self.started_at.elapsed(), answers) {
            self.current_pause = GatherPause::start(cx).map(|pause| GatheringPause::new(pause, self.from));
        }
        if self.current_pause.is_some() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Records a read of `bytes` bytes; `answers` is the total number of bytes of the other direction.
    pub fn on_read(&mut self, bytes: usize, answers: u64) {
        self.record_sizer.record(bytes);
        self.coalescer.record(self.started_at.elapsed(), bytes, answers);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::task::{LocalSet, spawn_local, yield_now};
    use tokio::time::timeout;

    use super::*;
    use crate::pump::pause;
    use crate::testing::tcp_pair;

    #[tokio::test]
    async fn single_byte_wakes_the_reader_after_a_gathering_pause() {
        let (near, mut far) = tcp_pair().await;
        // tokio regards a socket as readable until a read would block.
        assert!(near.try_read(&mut [0]).is_err());
        let gathering = async {
            let timer = spawn_local(pause::run());
            yield_now().await;
            let pause = poll_fn(|cx| Poll::Ready(GatherPause::start(cx))).await.expect("the timer runs");
            let gathering_pause = GatheringPause::new(pause, &near);
            far.write_all(b"!").await.unwrap();
            drop(gathering_pause);
            timeout(Duration::from_secs(10), near.readable()).await.expect("the socket is readable").unwrap();
            timer.abort();
        };
        LocalSet::new().run_until(gathering).await;
        assert_eq!(near.try_read(&mut [0; 2]).unwrap(), 1);
    }
}
