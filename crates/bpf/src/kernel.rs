//! Capabilities of the running kernel, from its type information (BTF), and of this process.

use std::fs::read_to_string;
use std::path::Path;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Composite, Func};

/// Where a kernel shows its types.
pub const BTF: &str = "/sys/kernel/btf/vmlinux";

/// The types of a kernel.
pub struct KernelTypes {
    types: Btf<'static>,
}

impl KernelTypes {
    /// The running one; none when it was built without BTF, or this process does not see it.
    #[must_use]
    pub fn running() -> Option<Self> {
        Self::from_file(BTF)
    }

    /// The kernel, or the object, whose types are in `file`.
    #[must_use]
    pub fn from_file(file: impl AsRef<Path>) -> Option<Self> {
        file.as_ref().exists().then(|| Btf::from_path(file).ok().map(|types| Self { types })).flatten()
    }

    /// Whether there is a structure of that name.
    #[must_use]
    pub fn has_type(&self, structure: &str) -> bool {
        self.types.type_by_name::<Composite<'_>>(structure).is_some()
    }

    /// Whether there is a function of that name.
    #[must_use]
    pub fn has_function(&self, function: &str) -> bool {
        self.types.type_by_name::<Func<'_>>(function).is_some()
    }

    /// Whether that structure has that member.
    #[must_use]
    pub fn has_member(&self, structure: &str, member: &str) -> bool {
        self.types
            .type_by_name::<Composite<'_>>(structure)
            .is_some_and(|found| found.iter().any(|one| one.name.is_some_and(|name| name == member)))
    }
}

/// A privilege (capabilities(7)); `CAP_SYS_ADMIN` includes the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Programs, maps and their types.
    Bpf = 39,
    /// Programs that see the kernel's structures.
    Perfmon = 38,
    /// Required for objects of other processes.
    SysAdmin = 21,
}

impl Capability {
    /// Whether this process has it.
    #[must_use]
    pub fn is_effective(self) -> bool {
        let status = read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = line.and_then(|hexadecimal| u64::from_str_radix(hexadecimal.trim(), 16).ok()).unwrap_or(0);
        let has = |capability: Self| effective & (1 << capability as u32) != 0;
        has(self) || has(Self::SysAdmin)
    }

    /// As capabilities(7) writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bpf => "CAP_BPF",
            Self::Perfmon => "CAP_PERFMON",
            Self::SysAdmin => "CAP_SYS_ADMIN",
        }
    }
}

/// The capabilities that loading requires and this process lacks.
#[must_use]
pub fn missing_capabilities() -> Vec<Capability> {
    [Capability::Bpf, Capability::Perfmon].into_iter().filter(|capability| !capability.is_effective()).collect()
}
