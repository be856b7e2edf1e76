//! From the bytes that the crate carries to programs and maps in the kernel, fitted to it; nothing is registered yet.

use libbpf_rs::{MapCore, MapHandle, MapType, Object, ObjectBuilder, OpenObject};

use super::pins::PinKind;
use super::resume::RESUMES;
use super::telemetry::SECTIONS;
use super::{Algorithm, CongestionError, pins};
use crate::kernel::{self, KernelTypes};
use crate::messages;

/// From linux/bpf.h: the map is registered by a link.
pub(super) const BPF_F_LINK: u32 = 1 << 13;

/// The connections' storages: the map's name in an object, and its pin.
const STORAGES: [(&str, PinKind); 2] = [(SECTIONS, PinKind::Sections), (RESUMES, PinKind::Resumes)];

/// The struct_ops type of congestion controls.
const STRUCT_OPS_TYPE: &str = "bpf_struct_ops_tcp_congestion_ops";

/// Members that a kernel version has changed, and the suffix of the map for such kernels.
const VARIANTS: &[(&str, &str)] = &[("cwnd_event_tx_start", "_7_1")];

/// How the kernel is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationMethod {
    /// By a link, Linux 6.4: the registration lives as long as the link.
    Link,
    /// By writing the map, Linux 5.6: the registration stays until the entry is deleted.
    Map,
}

impl RegistrationMethod {
    /// The better one of those the kernel has.
    #[must_use]
    pub fn best_for(kernel: &KernelTypes) -> Self {
        if kernel.has_type("bpf_struct_ops_link") { Self::Link } else { Self::Map }
    }
}

/// Loaded into the kernel, not registered.
pub(super) struct LoadedObject {
    pub(super) object: Object,
    /// The map with the operations.
    pub(super) operations: String,
}

/// Puts the programs and maps into the kernel. `share` has the connections' storage be the one that is pinned already,
/// so that a reader finds old and new connections in one place.
///
/// # Errors
/// All but those about pins and names.
pub(super) fn load(
    algorithm: &Algorithm,
    method: Option<RegistrationMethod>,
    share: bool,
) -> Result<(LoadedObject, RegistrationMethod), CongestionError> {
    let kernel = KernelTypes::running().ok_or(CongestionError::NoBtf)?;
    check_support(&kernel)?;
    let lacking = kernel::missing_capabilities();
    if !lacking.is_empty() {
        return Err(CongestionError::NotPermitted { lacking });
    }
    let method = method.unwrap_or_else(|| RegistrationMethod::best_for(&kernel));
    let (loaded, log) = messages::capture(|| open_and_load(algorithm, &kernel, method, share));
    loaded.map(|loaded| (loaded, method)).map_err(|error| {
        let (name, cause) = (algorithm.name.to_owned(), format!("{error}"));
        CongestionError::Refused { name, cause, log }
    })
}

/// Whether the kernel takes congestion controls from outside.
///
/// # Errors
/// [`CongestionError::NoStructOps`]
pub fn check_support(kernel: &KernelTypes) -> Result<(), CongestionError> {
    if kernel.has_type(STRUCT_OPS_TYPE) { Ok(()) } else { Err(CongestionError::NoStructOps) }
}

fn open_and_load(
    algorithm: &Algorithm,
    kernel: &KernelTypes,
    method: RegistrationMethod,
    share: bool,
) -> libbpf_rs::Result<LoadedObject> {
    let mut open_object = ObjectBuilder::default().open_memory(algorithm.object)?;
    let operations = operations(&open_object, algorithm.name, |member| kernel.has_member("tcp_congestion_ops", member));
    for mut map in open_object.maps_mut() {
        if map.map_type() == MapType::StructOps {
            map.set_autocreate(map.name() == operations.as_str())?;
            if method == RegistrationMethod::Map {
                let flags = map.map_flags();
                map.set_map_flags(flags & !BPF_F_LINK)?;
            }
        } else if share && let Some((_, kind)) = STORAGES.iter().find(|(name, _)| map.name() == *name) {
            // Of another version, it may be of another shape; then this one has its own.
            let pinned = pins::storage(algorithm.name, *kind);
            if let Some(pinned) = pinned.filter(|old| old.value_size() == map.value_size()) {
                map.reuse_fd(std::os::fd::AsFd::as_fd(&pinned))?;
            }
        }
    }
    Ok(LoadedObject { object: open_object.load()?, operations })
}

/// Which of the object's maps has the operations for a kernel with such members.
fn operations(object: &OpenObject, name: &str, has_member: impl Fn(&str) -> bool) -> String {
    let has_map = |map_name: &String| object.maps().any(|map| map.name() == map_name.as_str());
    let variants = VARIANTS.iter().filter(|(member, _)| has_member(member));
    variants.map(|(_, suffix)| format!("{name}{suffix}")).find(has_map).unwrap_or_else(|| name.to_owned())
}

impl LoadedObject {
    /// The connections' telemetry, where the object has it.
    pub(super) fn sections(&self) -> Option<MapHandle> {
        self.map(SECTIONS)
    }

    /// The connections' requests for Careful Resume, where the congestion control knows them.
    pub(super) fn resumes(&self) -> Option<MapHandle> {
        self.map(RESUMES)
    }

    /// The connections' storages, and where they are pinned.
    pub(super) fn storages(&self) -> impl Iterator<Item = (PinKind, MapHandle)> {
        STORAGES.iter().filter_map(|(name, kind)| Some((*kind, self.map(name)?)))
    }

    /// The map that is registered.
    pub(super) fn operations(&self) -> Option<MapHandle> {
        self.map(&self.operations)
    }

    fn map(&self, name: &str) -> Option<MapHandle> {
        let map = self.object.maps().find(|map| map.name() == name)?;
        MapHandle::try_from(&map).ok()
    }
}

/// Whether a map of that name is one of ours for `algorithm`.
pub(super) fn is_ours(map: &str, algorithm: &str) -> bool {
    let rest = map.strip_prefix(algorithm);
    rest.is_some_and(|rest| rest.is_empty() || VARIANTS.iter().any(|(_, suffix)| rest == *suffix))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use ekiden_testing::skipped;

    use super::*;
    use crate::congestion::find;

    fn open(name: &str) -> OpenObject {
        ObjectBuilder::default().open_memory(find(name).unwrap().object).unwrap()
    }

    #[test]
    fn operations_variant_matches_kernel_members() {
        for (name, new) in [("ctcp", "ctcp_7_1"), ("vegas", "vegas_7_1"), ("bic", "bic")] {
            let object = open(name);
            assert_eq!(operations(&object, name, |_| false), name);
            assert_eq!(operations(&object, name, |member| member == "cwnd_event_tx_start"), new);
        }
    }

    #[test]
    fn maps_of_all_variants_are_ours_and_other_maps_are_not() {
        for (map, algorithm, ours) in [
            ("ctcp", "ctcp", true),
            ("ctcp_7_1", "ctcp", true),
            ("ctcp_mine", "ctcp", false),
            ("dctcp", "ctcp", false),
            ("bbr", "ctcp", false),
        ] {
            assert_eq!(is_ours(map, algorithm), ours, "{map}");
        }
    }

    /// The types in the object file of `ctcp` stand for a kernel that has `tcp_congestion_ops` but not the hook of
    /// struct_ops.
    #[test]
    fn kernel_without_the_struct_ops_hook_is_detected() {
        let file = std::env::temp_dir().join(format!("ekiden-no-hook-{}", std::process::id()));
        std::fs::File::create(&file).unwrap().write_all(find("ctcp").unwrap().object).unwrap();
        let bare = KernelTypes::from_file(&file);
        std::fs::remove_file(file).unwrap();
        let bare = bare.unwrap();
        assert!(bare.has_member("tcp_congestion_ops", "cong_avoid"));
        assert!(matches!(check_support(&bare), Err(CongestionError::NoStructOps)));
        assert_eq!(RegistrationMethod::best_for(&bare), RegistrationMethod::Map, "no links either");
        assert!(KernelTypes::from_file("/nonexistent").is_none());
        match KernelTypes::running() {
            Some(running) => check_support(&running).unwrap(),
            None => skipped("in part: this kernel has no BTF"),
        }
    }

    /// The kernel rejects programs without a GPL-compatible licence, and reports the reason only in its log.
    #[test]
    fn kernel_log_of_a_rejected_program_is_kept() {
        if !kernel::missing_capabilities().is_empty() || KernelTypes::running().is_none() {
            skipped("loading is not permitted");
            return;
        }
        let ctcp = find("ctcp").unwrap();
        let mut object = ctcp.object.to_vec();
        let licence = b"Dual MIT/GPL";
        let at = object.windows(licence.len()).position(|bytes| bytes == licence).unwrap();
        object[at..at + licence.len()].copy_from_slice(b"Proprietary!");
        let closed = Algorithm { object: object.leak(), ..*ctcp };
        let Err(refused) = load(&closed, None, false) else { panic!("the kernel has accepted the program") };
        assert!(refused.log().unwrap().to_lowercase().contains("gpl"), "{:?}", refused.log());
        assert!(!refused.to_string().contains('\n') && refused.to_string().contains("--verbose"), "{refused}");
    }
}
