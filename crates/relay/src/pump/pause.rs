//! Pauses of 100 µs, for which the timers of the runtime are too coarse. One kernel timer serves all flows of a thread.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use ekiden_sys::timer::Timer;
use tokio::io::unix::AsyncFd;

const PAUSE_LENGTH: Duration = Duration::from_micros(100);

thread_local! {
    static PAUSE_TIMER: PauseTimer = PauseTimer::default();
}

#[derive(Default)]
struct PauseTimer {
    /// Upgrades to `None` on a thread that does not run the timer.
    timer: RefCell<Weak<AsyncFd<Timer>>>,
    /// Tasks that wait for the timer.
    waiting: RefCell<Vec<Waker>>,
    expirations: Cell<u64>,
}

/// Runs the timer of this thread, which ends the pauses. Without this task the thread has no pauses.
pub async fn run() {
    #[expect(deprecated, reason = "`register` is unsafe, for types that change their descriptor; a timer never does")]
    let timer = Timer::new().and_then(AsyncFd::new).map(Rc::new);
    // Without a descriptor for the timer there are no pauses.
    let Ok(timer) = timer else { return };
    PAUSE_TIMER.with(|pauses| pauses.timer.replace(Rc::downgrade(&timer)));
    while let Ok(mut ready) = timer.readable().await {
        // The next expiration is reported only after the timer is set again.
        ready.clear_ready();
        PAUSE_TIMER.with(|pauses| {
            pauses.expirations.set(pauses.expirations.get() + 1);
            pauses.waiting.take().into_iter().for_each(Waker::wake);
        });
    }
}

/// A pause that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GatherPause(u64);

impl GatherPause {
    /// Starts a pause, after which the task is woken; `None` if the timer does not run.
    pub fn start(cx: &Context<'_>) -> Option<Self> {
        PAUSE_TIMER.with(|pauses| {
            let timer = pauses.timer.borrow().upgrade()?;
            let mut waiting = pauses.waiting.borrow_mut();
            // Later tasks share the running timer, so their pauses are shorter.
            if waiting.is_empty() {
                timer.get_ref().set_after(PAUSE_LENGTH).ok()?;
            }
            waiting.push(cx.waker().clone());
            Some(Self(pauses.expirations.get()))
        })
    }

    /// Returns whether the pause has ended.
    pub fn is_over(self) -> bool {
        PAUSE_TIMER.with(|pauses| pauses.expirations.get() != self.0)
    }
}
