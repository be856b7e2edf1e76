//! The repeated steps of a run: a transfer of the workload, and a small transfer to test that all programs are in
//! service.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use ekiden_proto::units::{Bytes, Span};

use super::transfer::{self, Transfer};
use super::{blocks, flows, stream};
use crate::experiment::spec::file::Workload;
use crate::program::content::Content;
use crate::program::curl::ClientRoute;
use crate::program::iperf3::StreamAmount;
use crate::program::receiver::FlowReceiver;
use crate::program::server::{self, Protocol};
use crate::topology::network::HostHandle;

/// Size of the small transfer that tests whether all programs are in service, in bytes.
pub const TRIAL_BYTES: u64 = 1024;

/// The files that the servers offer for download.
pub struct ContentFiles {
    /// The directory of the files.
    pub root: PathBuf,
    by_size: BTreeMap<u64, Content>,
}

impl ContentFiles {
    /// Creates a file for the trial transfer and files of the sizes `others` in `base/content`, unless they exist.
    ///
    /// # Errors
    /// A file or the directory cannot be created.
    pub fn create(base: &Path, others: impl Iterator<Item = Bytes>) -> anyhow::Result<Self> {
        let root = base.join("content");
        std::fs::create_dir_all(&root)?;
        let sizes = others.map(|bytes| bytes.0).chain([TRIAL_BYTES]);
        let all = sizes.map(|bytes| Ok((bytes, Content::create(&root, bytes)?)));
        Ok(Self { by_size: all.collect::<anyhow::Result<_>>()?, root })
    }
}

/// The transfers, and the client's access to the server.
pub struct TransferTask<'a> {
    /// The transfers of the run.
    pub workload: &'a Workload,
    /// Duration of a stream, of concurrent flows or of arrivals; `None` if the workload has no `time`.
    pub time: Option<Duration>,
    /// The host of the client.
    pub client: &'a HostHandle,
    /// The address of the server host.
    pub server: IpAddr,
    /// Route of the client to the server: direct, through a proxy, or to a forwarding relay.
    pub client_route: ClientRoute,
    /// The files of the server.
    pub files: &'a ContentFiles,
    /// The receiver of flows; `None` for other protocols.
    pub receiver: Option<&'a FlowReceiver>,
    /// Directory of the temporary files of the run.
    pub folder: &'a Path,
}

impl TransferTask<'_> {
    /// Makes a transfer of [`TRIAL_BYTES`].
    ///
    /// # Errors
    /// The client program fails.
    pub fn try_transfer(&self, timeout: Duration) -> anyhow::Result<Transfer> {
        if self.receiver.is_some() {
            return flows::attempt_flow(self.client, self.direct_target()?, TRIAL_BYTES, timeout);
        }
        match (self.workload.protocol, self.workload.amount) {
            (Protocol::Stream, _) => self.run_stream(StreamAmount::Bytes(TRIAL_BYTES), timeout),
            (_, Some(_)) => self.run_writer(TRIAL_BYTES, [None, None], timeout),
            (_, None) => self.fetch(TRIAL_BYTES, timeout),
        }
    }

    /// Makes a transfer of the workload. A stream may take `timeout` longer than its duration.
    ///
    /// # Errors
    /// The client fails, or the received data differ from the sent data.
    pub fn run_transfer(&self, timeout: Duration) -> anyhow::Result<Transfer> {
        if let Some(receiver) = self.receiver {
            return self.run_flows(receiver);
        }
        match (self.time, self.workload.amount) {
            (Some(time), _) => self.run_stream(StreamAmount::Time(time), time + timeout),
            (None, Some(amount)) => self.run_writer(amount.0, [self.workload.pause, self.workload.cap], timeout),
            (None, None) => self.fetch(self.workload.file.context("the workload has nothing to transfer")?.0, timeout),
        }
    }

    /// Fetches the file of `bytes` bytes.
    ///
    /// # Errors
    /// There is no such file, the client fails, or the received data differ from the sent data.
    pub fn fetch(&self, bytes: u64, timeout: Duration) -> anyhow::Result<Transfer> {
        let content = self.files.by_size.get(&bytes).context("there is no file of this size")?;
        let cap = self.workload.cap.map(|cap| cap.0);
        let url = server::url(self.workload.protocol, self.server, content);
        let (client, agent, via) = (self.client, self.workload.agent, self.client_route);
        let rate = self.workload.client_rate;
        transfer::fetch(transfer::FetchRequest {
            client,
            agent,
            url: &url,
            client_route: via,
            content,
            timeout,
            rate,
            cap,
        })
    }

    fn run_stream(&self, amount: StreamAmount, timeout: Duration) -> anyhow::Result<Transfer> {
        let (client, server, folder) = (self.client, self.direct_target()?, self.folder);
        stream::run_stream(stream::StreamRequest { client, server, amount, timeout, folder })
    }

    fn run_writer(&self, amount: u64, [pause, cap]: [Option<Span>; 2], timeout: Duration) -> anyhow::Result<Transfer> {
        let (client, server, folder) = (self.client, self.direct_target()?, self.folder);
        let block = self.workload.block.context("workload.block is missing")?.0;
        blocks::run_writer(blocks::BlockWriteRequest { client, server, amount, block, pause, cap, timeout, folder })
    }

    fn run_flows(&self, receiver: &FlowReceiver) -> anyhow::Result<Transfer> {
        let (client, server, short) = (self.client, self.direct_target()?, self.workload.short);
        let (connections, time) =
            self.workload.connections.zip(self.time).context("workload.connections or workload.time is missing")?;
        let warm_up = self.workload.warm_up.map_or(Duration::ZERO, |warm_up| warm_up.0);
        anyhow::ensure!(
            warm_up < time,
            "warm_up = {warm_up:?} is not shorter than the time {time:?}: use a longer --time"
        );
        flows::run_flows(receiver, flows::ParallelFlowsRequest { client, server, connections, short, time, warm_up })
    }

    /// Returns the address that a client without support for proxies connects to: the server, or a forwarding relay.
    fn direct_target(&self) -> anyhow::Result<SocketAddr> {
        match self.client_route {
            ClientRoute::Direct => Ok(SocketAddr::new(self.server, self.workload.protocol.port())),
            ClientRoute::Forwarder(relay) => Ok(relay),
            ClientRoute::Socks(_) | ClientRoute::Http(_) | ClientRoute::Tunnel(_) => {
                anyhow::bail!("the client does not support proxies")
            }
        }
    }
}
