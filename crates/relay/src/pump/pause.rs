//! Waits of a tenth of a millisecond, for which the runtime's clock is too coarse: one timer for all flows of a thread.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use ekiden_sys::timer::Timer;
use tokio::io::unix::AsyncFd;

/// How long anybody waits, at most.
const PAUSE_LENGTH: Duration = Duration::from_micros(100);

thread_local! {
    static PAUSE_TIMER: PauseTimer = PauseTimer::default();
}

#[derive(Default)]
struct PauseTimer {
    /// Gone on a thread that has none.
    timer: RefCell<Weak<AsyncFd<Timer>>>,
    /// Who waits until it rings.
    waiting: RefCell<Vec<Waker>>,
    /// How often it has rung.
    rung: Cell<u64>,
}

/// Ends pauses when it is time. As long as it does not run, there are none on this thread.
pub async fn run() {
    #[expect(deprecated, reason = "`register` is unsafe, for types that change their descriptor; a timer never does")]
    let timer = Timer::new().and_then(AsyncFd::new).map(Rc::new);
    // Where descriptors have run out, nobody waits for anything.
    let Ok(timer) = timer else { return };
    PAUSE_TIMER.with(|pauses| pauses.timer.replace(Rc::downgrade(&timer)));
    while let Ok(mut ready) = timer.readable().await {
        // What it has rung for is told again only when it is set again.
        ready.clear_ready();
        PAUSE_TIMER.with(|pauses| {
            pauses.rung.set(pauses.rung.get() + 1);
            pauses.waiting.take().into_iter().for_each(Waker::wake);
        });
    }
}

/// A pause that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatherPause(u64);

impl GatherPause {
    /// Begins one, after which the task is woken. None where there are none.
    pub fn start(cx: &Context<'_>) -> Option<Self> {
        PAUSE_TIMER.with(|pauses| {
            let timer = pauses.timer.borrow().upgrade()?;
            let mut waiting = pauses.waiting.borrow_mut();
            // Who comes later waits for less.
            if waiting.is_empty() {
                timer.get_ref().set_after(PAUSE_LENGTH).ok()?;
            }
            waiting.push(cx.waker().clone());
            Some(Self(pauses.rung.get()))
        })
    }

    /// Whether it is over.
    pub fn is_over(self) -> bool {
        PAUSE_TIMER.with(|pauses| pauses.rung.get() != self.0)
    }
}
