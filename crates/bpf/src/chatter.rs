//! What libbpf says: kept, so that it reaches nobody who did not ask, and the verifier's log an error's end.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use libbpf_rs::{PrintLevel, set_print};

/// More than any log of ours; the verifier's can have a megabyte.
const MOST: usize = 64 << 10;

static SAID: Mutex<String> = Mutex::new(String::new());
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs `act`; beside its result, what libbpf said meanwhile.
pub(crate) fn during<T>(act: impl FnOnce() -> T) -> (T, String) {
    hush();
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    said().clear();
    let result = act();
    (result, std::mem::take(&mut *said()))
}

/// From now on nobody hears what libbpf says.
pub(crate) fn hush() {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        set_print(Some((PrintLevel::Info, note)));
    });
}

fn note(_: PrintLevel, line: String) {
    let mut said = said();
    if said.len() < MOST {
        said.push_str(&line);
    }
}

fn said() -> MutexGuard<'static, String> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner)
}
