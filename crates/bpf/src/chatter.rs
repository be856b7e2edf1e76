//! What libbpf says: kept, so that it reaches nobody who did not ask, and the verifier's log an error's end.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use libbpf_rs::{PrintLevel, set_print};

/// More than any log of ours; the verifier's can have a megabyte.
const MAX_LOG: usize = 64 << 10;

static LOG: Mutex<String> = Mutex::new(String::new());
static CAPTURE: Mutex<()> = Mutex::new(());

/// Runs `act`; beside its result, what libbpf said meanwhile.
pub(crate) fn capture<T>(act: impl FnOnce() -> T) -> (T, String) {
    silence();
    let _turn = CAPTURE.lock().unwrap_or_else(PoisonError::into_inner);
    buffer().clear();
    let result = act();
    (result, std::mem::take(&mut *buffer()))
}

/// From now on nobody hears what libbpf says.
pub(crate) fn silence() {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        set_print(Some((PrintLevel::Info, on_line)));
    });
}

fn on_line(_: PrintLevel, line: String) {
    let mut said = buffer();
    if said.len() < MAX_LOG {
        said.push_str(&line);
    }
}

fn buffer() -> MutexGuard<'static, String> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}
