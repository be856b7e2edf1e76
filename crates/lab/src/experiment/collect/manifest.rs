//! The manifest of an experiment: the programs, the machine, and the settings that its runs are made with.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use ekiden_sys::process::effective_uid;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;

use super::results::Manifest;
use crate::experiment::run::campaign::ExperimentOptions;
use crate::experiment::spec::read::{CellKey, Experiment, ExperimentCell};
use crate::experiment::spec::treatment::RelayProgram;
use crate::program::server::Protocol;
use crate::program::{
    self, ProgramInfo, congestion, dante, ekiden, haproxy, iperf3, openvpn, program_version, softether, squid, ssh,
    transparent, vtun,
};
use crate::virtual_time::kernel::KernelInfo;
use crate::virtual_time::machine::{MachineOptions, VirtualTime};

/// The installed programs that an experiment needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstalledPrograms {
    /// Path of the ekiden executable; `None` if the experiment does not need ekiden.
    pub ekiden: Option<PathBuf>,
    /// Names and versions of the programs.
    pub versions: Vec<(String, String)>,
}

impl InstalledPrograms {
    /// Finds the programs that `experiment` needs, and their versions.
    ///
    /// # Errors
    /// A text for each missing program, with the name of its package.
    pub fn find(experiment: &Experiment, request: &ExperimentOptions) -> Result<Self, Vec<String>> {
        let cells: Vec<&ExperimentCell> = experiment.selected_cells(request.full).collect();
        let mut tools = Self::default();
        let mut missing = Vec::new();
        for program in required_programs(&cells) {
            match program.installed_version() {
                Ok(version) => tools.versions.push((program.name.into(), version)),
                Err(error) => missing.push(error.to_string()),
            }
        }
        let relays: BTreeSet<&String> = cells.iter().filter_map(|cell| cell.spec.treatment.command.first()).collect();
        for relay in relays {
            tools.versions.push((relay.clone(), program_version(relay.as_ref(), &["--version"])));
        }
        if cells.iter().any(|cell| cell.spec.treatment.program == RelayProgram::Ekiden) {
            match ekiden::find(request.ekiden.as_deref()).and_then(|path| Ok((ekiden::version(&path)?, path))) {
                Ok((version, path)) => {
                    tools.versions.push(("ekiden".into(), version));
                    tools.ekiden = Some(path);
                }
                Err(error) => missing.push(format!("{error:#}")),
            }
        }
        if tools.ekiden.is_none() && congestion::needs_ekiden(&congestion::required_controls(&cells)) {
            // Without ekiden, `LoadedControls::load` reports the controls that the kernel lacks.
            if let Ok(path) = ekiden::find(request.ekiden.as_deref()) {
                let version = ekiden::version(&path).map_err(|error| vec![format!("{error:#}")])?;
                tools.versions.push(("ekiden".into(), version));
                tools.ekiden = Some(path);
            }
        }
        let is_selected =
            |cell: &&&ExperimentCell| request.only.is_empty() || request.only.contains(&cell.key.treatment);
        let mut selected = cells.iter().filter(is_selected);
        let changes_user =
            |cell: &&ExperimentCell| matches!(cell.spec.treatment.program, RelayProgram::Squid | RelayProgram::Ssh);
        // In a virtual machine, every program runs as root.
        if effective_uid() != 0 && request.virtual_time.is_none() && selected.any(changes_user) {
            missing.push(
                "squid and sshd must switch to another user: run as root (sudo), or select other treatments with --only"
                    .into(),
            );
        }
        if missing.is_empty() { Ok(tools) } else { Err(missing) }
    }
}

fn required_programs(cells: &[&ExperimentCell]) -> Vec<&'static ProgramInfo> {
    let mut programs: Vec<&'static ProgramInfo> = Vec::new();
    let mut add = |program: &'static ProgramInfo| {
        if !programs.contains(&program) {
            programs.push(program);
        }
    };
    for cell in cells {
        if matches!(cell.spec.workload.protocol, Protocol::Http | Protocol::Ftp) {
            add(cell.spec.workload.agent.program_info());
        }
        cell.spec.workload.server_program().program_info().into_iter().for_each(&mut add);
        if cell.spec.treatment.transparent {
            add(&transparent::PROGRAM);
        }
        match cell.spec.treatment.program {
            RelayProgram::Dante => add(&dante::PROGRAM),
            RelayProgram::Squid => add(&squid::PROGRAM),
            RelayProgram::Haproxy => add(&haproxy::PROGRAM),
            RelayProgram::Ssh => [&ssh::PROGRAM, &ssh::SSHD].into_iter().for_each(&mut add),
            RelayProgram::Openvpn => [&openvpn::PROGRAM, &openvpn::OPENSSL].into_iter().for_each(&mut add),
            RelayProgram::Vtun => add(&vtun::PROGRAM),
            RelayProgram::Softether => add(&softether::PROGRAM),
            RelayProgram::Direct | RelayProgram::Ekiden | RelayProgram::Command => {}
        }
        if !cell.spec.background.is_empty() {
            add(&iperf3::PROGRAM);
        }
    }
    programs
}

/// Builds the manifest of an experiment before its first run.
///
/// # Errors
/// A cell cannot be serialised, which no experiment file should cause.
pub fn build_manifest(
    experiment: &Experiment,
    tools: &InstalledPrograms,
    request: &ExperimentOptions,
) -> anyhow::Result<Manifest> {
    let cells: Vec<&ExperimentCell> = experiment.selected_cells(request.full).collect();
    let levels = |factor: &crate::experiment::spec::factor::Factor| {
        let meant = factor.levels.iter().filter(|level| request.full || factor.is_quick(level));
        (factor.name.clone(), meant.map(|level| level.name.clone()).collect())
    };
    let inherited = inherited_settings(request.virtual_time.as_ref());
    let digest = digest(experiment, tools, &cells, request, &inherited)?;
    let mut settings = host_settings(&cells);
    settings.extend(inherited);
    settings.extend(request.time.map(|time| ("--time".to_owned(), format!("{time:?}"))));
    Ok(Manifest {
        name: experiment.name.clone(),
        title: experiment.title.clone(),
        source: experiment.source.clone(),
        size: request.size_name().into(),
        file: experiment.text.clone(),
        digest,
        seed: experiment.seed,
        blocks: request.block_count(experiment),
        factors: experiment.factors.iter().map(levels).collect(),
        treatments: experiment.settings.treatments.clone(),
        metric: experiment.metric.clone(),
        map: experiment.settings.map.clone(),
        started: utc_now(),
        machine: machine_facts(request.virtual_time.as_ref()),
        programs: tools.versions.clone(),
        settings,
    })
}

/// Returns a digest of everything that a figure depends on. The expectations and the number of blocks are not included:
/// they may change between runs.
fn digest(
    experiment: &Experiment,
    tools: &InstalledPrograms,
    cells: &[&ExperimentCell],
    request: &ExperimentOptions,
    inherited: &[(String, String)],
) -> anyhow::Result<String> {
    let mut digest = Sha256::new();
    digest.update(env!("CARGO_PKG_VERSION"));
    digest_cells(&mut digest, cells, request.full, request.time)?;
    let settings = &experiment.settings;
    digest.update(format!("{:?} {:?}", settings.timeout, settings.lateness_limit));
    let kernel = match &request.virtual_time {
        Some(virtual_time) => virtual_time.kernel.info.digest.clone(),
        None => read_proc("/proc/sys/kernel/osrelease"),
    };
    digest.update(format!("{:?} {kernel:?}", tools.versions));
    // Without a setting, the digest is that of earlier builds.
    for setting in inherited {
        digest.update(format!("{setting:?}"));
    }
    Ok(format_digest(digest))
}

/// Returns a digest of the cells of the full size, which is everything in the experiment file that a figure depends on.
///
/// # Panics
/// A cell cannot be serialised as JSON, which no experiment file causes.
#[must_use]
pub fn cells_digest(experiment: &Experiment) -> String {
    let mut digest = Sha256::new();
    let cells: Vec<&ExperimentCell> = experiment.selected_cells(true).collect();
    digest_cells(&mut digest, &cells, true, None).expect("cells are JSON");
    format_digest(digest)
}

fn digest_cells(
    digest: &mut Sha256,
    cells: &[&ExperimentCell],
    full: bool,
    time: Option<Duration>,
) -> serde_json::Result<()> {
    for cell in cells {
        // The same text as in earlier builds, so that unfinished results of those builds can be continued.
        let CellKey { levels, treatment } = &cell.key;
        digest.update(format!("Place {{ levels: {levels:?}, treatment: {treatment:?} }}"));
        digest.update(serde_json::to_vec(&cell.spec)?);
        digest.update(format!("{:?}", cell.spec.workload.time.map(|own| time.unwrap_or(own.for_size(full)))));
    }
    Ok(())
}

fn format_digest(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn machine_facts(virtual_time: Option<&VirtualTime>) -> Vec<(String, String)> {
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processor.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or("unknown").trim().to_owned();
    let privilege = if program::is_rootless() { "user namespace" } else { "root" };
    let clock = virtual_time.map_or_else(
        || "real".to_owned(),
        |virtual_time| {
            let KernelInfo { release, digest, .. } = &virtual_time.kernel.info;
            format!("virtual: Linux {release} ({}); programs take no time", &digest[..12.min(digest.len())])
        },
    );
    [
        ("clock", clock),
        ("kernel", read_proc("/proc/sys/kernel/osrelease")),
        ("processor", model.trim_start_matches(['\t', ':', ' ']).to_owned()),
        ("cores", cores.to_string()),
        ("memory", memory),
        ("ekiden-lab", env!("CARGO_PKG_VERSION").to_owned()),
        ("privilege", privilege.to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Returns the settings of the hosts and kernel modules in the first cell.
fn host_settings(cells: &[&ExperimentCell]) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    for (module, parameters) in cells.first().iter().flat_map(|cell| &cell.spec.lab.modules) {
        settings.extend(parameters.iter().map(|(name, value)| (format!("{module}.{name}"), value.clone())));
    }
    for (name, host) in cells.first().iter().flat_map(|cell| &cell.spec.lab.hosts) {
        let congestion = host.congestion.clone().unwrap_or_else(|| "the kernel's default".into());
        let sysctls: String = host.sysctl.iter().map(|(key, value)| format!(", {key} = {value}")).collect();
        settings.push((name.clone(), format!("congestion control {congestion}, offload {:?}{sysctls}", host.offload)));
    }
    settings
}

/// Returns the settings outside of the experiment file that hosts inherit. In virtual time the kernel of the machine
/// sets its defaults, the limits of buffers by the memory of the machine, which is named unless it is the default.
fn inherited_settings(virtual_time: Option<&VirtualTime>) -> Vec<(String, String)> {
    if let Some(VirtualTime { options: MachineOptions { memory, .. }, .. }) = virtual_time {
        let is_default = *memory == MachineOptions::default().memory;
        return if is_default { Vec::new() } else { vec![("--memory".to_owned(), memory.to_string())] };
    }
    [
        "net.ipv4.tcp_congestion_control",
        "net.core.rmem_max",
        "net.core.wmem_max",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_wmem",
    ]
    .map(|key| (key.to_owned(), read_proc(&format!("/proc/sys/{}", key.replace('.', "/")))))
    .into()
}

fn read_proc(file: &str) -> String {
    std::fs::read_to_string(file)
        .map_or_else(|_| "unknown".into(), |text| text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Returns the current time in UTC in the format of RFC 3339.
#[must_use]
pub fn utc_now() -> String {
    let now = OffsetDateTime::now_utc();
    let (date, time) = (now.date(), now.time());
    format!("{date}T{:02}:{:02}:{:02}Z", time.hour(), time.minute(), time.second())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::examples_for_tests::small_experiment;
    use crate::virtual_time::kernel::VirtualKernel;
    use ekiden_proto::units::Bytes;

    /// The duration was only in the digest, so that a comparison of 5 s with 60 s named no difference.
    #[test]
    fn duration_of_the_command_line_is_a_setting() {
        let experiment = small_experiment("").unwrap();
        let duration = |time: Option<Duration>| {
            let request = ExperimentOptions { time, ..ExperimentOptions::default() };
            let manifest = build_manifest(&experiment, &InstalledPrograms::default(), &request).unwrap();
            manifest.settings.into_iter().find(|(name, _)| name == "--time").map(|(_, value)| value)
        };
        assert_eq!(duration(Some(Duration::from_secs(5))).as_deref(), Some("5s"));
        assert_eq!(duration(None), None);
    }

    fn virtual_time(memory: Bytes) -> VirtualTime {
        let info = KernelInfo {
            release: "6.12".to_owned(),
            congestion_controls: Vec::new(),
            emulator: String::new(),
            digest: "d1".to_owned(),
            source: String::new(),
            built_using: Vec::new(),
        };
        let kernel = VirtualKernel { path: PathBuf::new(), info };
        VirtualTime { kernel, options: MachineOptions { memory, ..MachineOptions::default() } }
    }

    /// Results in virtual time had the host's sysctls, which no guest inherits, and not the memory of the machine.
    #[test]
    fn inherited_settings_are_those_of_the_kernel_that_runs_the_hosts() {
        let names = |virtual_time: Option<VirtualTime>| -> Vec<String> {
            inherited_settings(virtual_time.as_ref()).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(None).last().map(String::as_str), Some("net.ipv4.tcp_wmem"));
        assert_eq!(names(Some(virtual_time(MachineOptions::default().memory))), [""; 0]);
        let memory = inherited_settings(Some(&virtual_time(Bytes(512 << 20))));
        assert_eq!(memory, [("--memory".to_owned(), "512MiB".to_owned())]);
    }

    /// An experiment in real time was continued although the settings that its hosts inherit had changed.
    #[test]
    fn digest_depends_on_inherited_settings() {
        let experiment = small_experiment("").unwrap();
        let cells: Vec<&ExperimentCell> = experiment.selected_cells(false).collect();
        let digest_with = |value: &str| {
            let inherited = [("net.ipv4.tcp_wmem".to_owned(), value.to_owned())];
            let (tools, request) = (InstalledPrograms::default(), ExperimentOptions::default());
            digest(&experiment, &tools, &cells, &request, &inherited).unwrap()
        };
        assert_eq!(digest_with("4096 16384 4194304"), digest_with("4096 16384 4194304"));
        assert_ne!(digest_with("4096 16384 4194304"), digest_with("4096 16384 8388608"));
    }
}
