//! Reads the clock of a running virtual machine from the host.
//!
//! The kernel of a machine is a process of this user, and its virtual time is a variable in the memory of that process.
//! A read takes a microsecond, and has no effect on the machine.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

/// The symbol of the time since the boot of the machine, in nanoseconds: `arch/um/kernel/time.c`.
const CLOCK_SYMBOL: &[u8] = b"time_travel_time";
/// The type of a section that contains a symbol table (elf(5)).
const SHT_SYMTAB: u32 = 2;
/// The sizes of a section header and of a symbol in a 64-bit file, in bytes.
const SECTION_HEADER_SIZE: usize = 64;
const SYMBOL_SIZE: usize = 24;

/// The address of the clock in the memory of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelClock {
    address: u64,
}

impl KernelClock {
    /// Finds the clock in the symbol table of a kernel; `None` if it has no such symbol.
    #[must_use]
    pub fn find(kernel: &Path) -> Option<Self> {
        symbol_address(&fs::read(kernel).ok()?, CLOCK_SYMBOL).map(|address| Self { address })
    }

    /// Returns the virtual time that has passed in the machine whose kernel is `process`. `None` if the machine has
    /// ended, or if the host does not permit this process to read its memory (`/proc/sys/kernel/yama/ptrace_scope`).
    #[must_use]
    pub fn read(self, process: u32) -> Option<Duration> {
        let mut nanoseconds = [0; 8];
        let memory = File::open(format!("/proc/{process}/mem")).ok()?;
        memory.read_exact_at(&mut nanoseconds, self.address).ok()?;
        Some(Duration::from_nanos(u64::from_le_bytes(nanoseconds)))
    }
}

/// Returns the value of a symbol in a 64-bit little-endian executable (elf(5)).
fn symbol_address(elf: &[u8], name: &[u8]) -> Option<u64> {
    let sections = integer(elf, 0x28)?;
    let section = |number: usize| {
        let start = number.checked_mul(SECTION_HEADER_SIZE)?.checked_add(sections)?;
        elf.get(start..start.checked_add(SECTION_HEADER_SIZE)?)
    };
    let content = |header: &[u8]| {
        let (start, size) = (integer(header, 0x18)?, integer(header, 0x20)?);
        elf.get(start..start.checked_add(size)?)
    };
    let mut headers = (0..).map_while(section);
    let table = headers.find(|header| header.get(4..8) == Some(&SHT_SYMTAB.to_le_bytes()[..]))?;
    let names = content(section(u32::from_le_bytes(table.get(0x28..0x2c)?.try_into().ok()?) as usize)?)?;
    let symbol = content(table)?.chunks_exact(SYMBOL_SIZE).find(|symbol| {
        let start = u32::from_le_bytes([symbol[0], symbol[1], symbol[2], symbol[3]]) as usize;
        names.get(start..).and_then(|names| names.strip_prefix(name)).is_some_and(|rest| rest.first() == Some(&0))
    })?;
    integer(symbol, 8).and_then(|address| u64::try_from(address).ok())
}

/// The 64-bit integer at `offset`.
fn integer(bytes: &[u8], offset: usize) -> Option<usize> {
    let bytes = bytes.get(offset..offset.checked_add(8)?)?;
    usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with two sections: the string table, and the symbols `a` and `time_travel_time`.
    fn executable() -> Vec<u8> {
        let names = b"\0a\0time_travel_time\0";
        let mut file = vec![0; 64];
        file.extend(names);
        let symbols = file.len();
        for (name, address) in [(1_u32, 0x10_u64), (3, 0x6095_d440)] {
            file.extend(name.to_le_bytes());
            file.extend([0; 4]);
            file.extend(address.to_le_bytes());
            file.extend([0; 8]);
        }
        let sections = file.len() as u64;
        file[0x28..0x30].copy_from_slice(&sections.to_le_bytes());
        for (kind, start, size) in [(3_u32, 64, names.len()), (SHT_SYMTAB, symbols, 2 * SYMBOL_SIZE)] {
            let mut header = vec![0; SECTION_HEADER_SIZE];
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[0x18..0x20].copy_from_slice(&(start as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(size as u64).to_le_bytes());
            file.extend(header);
        }
        file
    }

    #[test]
    fn a_symbol_is_found_by_its_whole_name() {
        let file = executable();
        assert_eq!(symbol_address(&file, CLOCK_SYMBOL), Some(0x6095_d440));
        assert_eq!(symbol_address(&file, b"time_travel"), None);
        for length in 0..file.len() {
            assert_eq!(symbol_address(&file[..length], CLOCK_SYMBOL), None, "cut off at {length}");
        }
    }

    #[test]
    fn memory_of_this_process_is_read() {
        let nanoseconds = 1_500_000_000_u64;
        let clock = KernelClock { address: std::ptr::from_ref(&nanoseconds).addr() as u64 };
        assert_eq!(clock.read(std::process::id()), Some(Duration::from_millis(1500)));
        assert_eq!(clock.read(u32::MAX), None);
    }
}
