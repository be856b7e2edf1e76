//! Captures the messages of libbpf: they are printed nowhere, and the verifier's log becomes part of an error.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use libbpf_rs::{PrintLevel, set_print};

/// More than any log of ours; the verifier's can have a megabyte.
const MAX_LOG: usize = 64 << 10;

static LOG: Mutex<String> = Mutex::new(String::new());
static CAPTURE: Mutex<()> = Mutex::new(());

/// Runs `act`; returns its result and the messages of libbpf meanwhile.
pub(crate) fn capture<T>(act: impl FnOnce() -> T) -> (T, String) {
    silence();
    let _lock = CAPTURE.lock().unwrap_or_else(PoisonError::into_inner);
    buffer().clear();
    let result = act();
    (result, std::mem::take(&mut *buffer()))
}

/// Suppresses the messages of libbpf from now on.
pub(crate) fn silence() {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        set_print(Some((PrintLevel::Info, on_line)));
    });
}

fn on_line(_: PrintLevel, line: String) {
    let mut log = buffer();
    if log.len() < MAX_LOG {
        log.push_str(&line);
    }
}

fn buffer() -> MutexGuard<'static, String> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}
