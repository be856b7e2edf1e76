//! Runs each step of the arithmetic twice from the same state: compiled by clang for BPF, in the running kernel, and
//! compiled by gcc as for the virtual kernel, in a child process. Both results must be equal.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use ekiden_testing::skipped;
use libbpf_rs::{Object, ObjectBuilder, ProgramInput, ProgramType};

/// The options of the kernel's Makefile that affect integer arithmetic, and the header that replaces `kernel.h` in the
/// virtual kernel.
const GCC: &str = "-std=gnu11 -O2 -fno-strict-aliasing -fno-strict-overflow -fwrapv -funsigned-char -Wall -Wextra -Werror \
                   -Wno-unused-parameter -Itests/stepper -include ../lab/kernel/congestion/kernel.h -rdynamic";

/// The functions of a `tests/bpf/*_steps.bpf.c`.
pub struct Stepper {
    bpf: Option<Object>,
    executable: &'static Path,
    native: RefCell<HashMap<String, NativeFunction>>,
}

impl Stepper {
    /// Compiles and loads `source`, which is the same for all tests of a binary. Where this process may not load BPF
    /// programs, only the code of gcc runs, and the reason is printed.
    pub fn load(source: &str) -> Self {
        static EXECUTABLE: OnceLock<PathBuf> = OnceLock::new();
        let executable = EXECUTABLE.get_or_init(|| compile(source));
        Self { bpf: load_bpf(source), executable, native: RefCell::default() }
    }

    /// Runs `function`; `argument` holds the result afterwards.
    pub fn step(&self, function: &str, argument: &mut [u8]) {
        let before = argument.to_vec();
        let mut native = self.native.borrow_mut();
        let start = || NativeFunction::start(self.executable, function, before.len());
        native.entry(function.to_owned()).or_insert_with(start).step(argument);
        let Some(bpf) = &self.bpf else { return };
        let mut by_bpf = before.clone();
        let program = bpf.progs_mut().find(|found| found.name() == function).expect(function);
        let input = ProgramInput { context_in: Some(&mut by_bpf), ..ProgramInput::default() };
        assert_eq!(program.test_run(input).expect("the program runs").return_value, 0);
        let [before, gcc, bpf] = [&before, &*argument, &by_bpf].map(words);
        assert!(gcc == bpf, "{function} of {before:?}: gcc's code returns {gcc:?}, BPF {bpf:?}");
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

fn load_bpf(source: &str) -> Option<Object> {
    if !ProgramType::Syscall.is_supported().unwrap_or(false) {
        skipped("for BPF: the kernel loads no programs of this process");
        return None;
    }
    let object = Path::new(env!("OUT_DIR")).join(format!("{source}.bpf.o"));
    let open = ObjectBuilder::default().open_file(object).expect("an object file by clang");
    Some(open.load().expect("the kernel accepts the object"))
}

/// Compiles the code with gcc. The executable gets its name when it is complete, as other processes may run the same
/// test.
fn compile(source: &str) -> PathBuf {
    let executable = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source);
    let new = executable.with_extension(std::process::id().to_string());
    let mut gcc = Command::new("gcc");
    gcc.current_dir(env!("CARGO_MANIFEST_DIR")).args(GCC.split_whitespace());
    gcc.args(["tests/stepper/main.c", &format!("tests/bpf/{source}.bpf.c"), "-ldl", "-o"]).arg(&new);
    assert!(gcc.status().expect("gcc: scripts/setup build").success(), "{gcc:?}");
    std::fs::rename(new, &executable).expect("a file of the test");
    executable
}

/// A process of `main.c`, which runs one function.
struct NativeFunction(Child);

impl NativeFunction {
    fn start(executable: &Path, function: &str, size: usize) -> Self {
        let mut command = Command::new(executable);
        command.args([function, &size.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().expect("an executable by gcc"))
    }

    fn step(&mut self, argument: &mut [u8]) {
        self.0.stdin.as_mut().expect("a pipe").write_all(argument).expect("the program reads its input");
        self.0.stdout.as_mut().expect("a pipe").read_exact(argument).expect("the program writes the result");
    }
}

impl Drop for NativeFunction {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
