//! `[traces]`: the export of sessions as OpenTelemetry traces.

use std::fs;

use ekiden_proto::addr::Target;
use ekiden_proto::key::PublicKey;

use super::error::Disclosure;
use super::reader::TableReader;
use super::shared::ReadContext;
use super::value::{ConfigValue, Name, TomlType};

/// The collector and the sampled share of sessions.
#[derive(Debug, Clone, PartialEq)]
pub struct TracesConfig {
    /// The collector that spans are sent to.
    pub collector: Collector,
    /// The sampled share of sessions: 0 for none, 1 for all.
    pub sample_ratio: SampleRatio,
    /// Whether spans contain the addresses of clients.
    pub client_address: bool,
    /// The `service.name` of this relay.
    pub name: String,
    /// The public key that identifies this relay to other relays.
    pub key: PublicKey,
}

/// Reads `[traces]`; `None` without a collector.
pub(super) fn read_traces(file: &TableReader<'_>, shared: &ReadContext) -> Option<TracesConfig> {
    let reader = file.table("traces");
    let collector = if file.has("traces") { reader.required("endpoint") } else { None };
    let sample = reader.optional_or("sample", SampleRatio::ALL);
    let client_address = reader.optional_or("client_address", false);
    let name = reader.optional("name").map(|Name(name)| name);
    reader.finish();
    let (key, name) = (|| shared.dialling_key().public_key(), name.unwrap_or_else(host_name));
    collector.map(|collector| TracesConfig { collector, sample_ratio: sample, client_address, name, key: key() })
}

/// Returns the name of this host (proc_sys_kernel(5)).
fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// A collector with OTLP over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collector {
    /// The address and port of the collector.
    pub address: Target,
    /// The path before `/v1/traces`.
    pub path: String,
}

impl Collector {
    /// The default port (OTLP specification, OTLP/HTTP).
    const PORT: u16 = 4318;
}

impl ConfigValue for Collector {
    const DISCLOSURE: Disclosure = Disclosure::Url;
    const EXPECTED: &'static str = "the URL of a collector that speaks OTLP over HTTP, like \"http://127.0.0.1:4318\"; \
        for https, a collector on this host that forwards to it";
    fn read(text: &str) -> Result<Self, &'static str> {
        let rest = text.strip_prefix("http://").ok_or(Self::EXPECTED)?;
        let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
        let address = Target::parse(address, Some(Self::PORT)).map_err(|_| Self::EXPECTED)?;
        let path = path.trim_end_matches('/');
        if !path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~/%".contains(&byte)) {
            return Err(Self::EXPECTED);
        }
        // The documentation of a collector may give the URL including this part.
        let path = path.strip_suffix("v1/traces").unwrap_or(path).trim_end_matches('/');
        Ok(Self { address, path: if path.is_empty() { String::new() } else { format!("/{path}") } })
    }
}

/// A share from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleRatio(pub f64);

impl SampleRatio {
    /// Every session is traced.
    const ALL: Self = Self(1.0);
}

impl ConfigValue for SampleRatio {
    const EXPECTED: &'static str = "a share from 0 to 1, like 0.1";
    const TOML_TYPE: TomlType = TomlType::Decimal;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).map(Self).ok_or(Self::EXPECTED)
    }
}
