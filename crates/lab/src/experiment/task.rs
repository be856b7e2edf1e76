//! What a run does again and again: a transfer of the workload, and a small one to try whether all is in service.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use ekiden_proto::units::{Bytes, Span};

use crate::experiment::file::Workload;
use crate::experiment::transfer::{self, Transfer};
use crate::experiment::{blocks, flows, stream};
use crate::program::content::Content;
use crate::program::curl::Via;
use crate::program::iperf3::Amount;
use crate::program::receiver::Receiver;
use crate::program::server::{self, Protocol};
use crate::topology::network::HostHandle;

/// How much is transferred to try whether all is in service, in bytes.
pub const TRIAL: u64 = 1024;

/// The files that servers serve.
pub struct Files {
    /// The folder they are in.
    pub root: PathBuf,
    all: BTreeMap<u64, Content>,
}

impl Files {
    /// Makes a small one, and others of so many bytes, below `base`, unless they are there.
    ///
    /// # Errors
    /// The file system's.
    pub fn create(base: &Path, others: impl Iterator<Item = Bytes>) -> anyhow::Result<Self> {
        let root = base.join("content");
        std::fs::create_dir_all(&root)?;
        let sizes = others.map(|bytes| bytes.0).chain([TRIAL]);
        let all = sizes.map(|bytes| Ok((bytes, Content::create(&root, bytes)?)));
        Ok(Self { all: all.collect::<anyhow::Result<_>>()?, root })
    }
}

/// Who transfers what, and how the client reaches the server.
pub struct Task<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// How long a stream is; none if it is no stream.
    pub time: Option<Duration>,
    /// The host of the client.
    pub client: &'a HostHandle,
    /// The server's address.
    pub server: Ipv4Addr,
    /// How the client reaches it.
    pub via: Via,
    /// What it serves.
    pub files: &'a Files,
    /// What takes flows; none if there are none.
    pub receiver: Option<&'a Receiver>,
    /// Where files of the run go.
    pub folder: &'a Path,
}

impl Task<'_> {
    /// Makes a small transfer.
    ///
    /// # Errors
    /// The client's.
    pub fn attempt(&self, timeout: Duration) -> anyhow::Result<Transfer> {
        if self.receiver.is_some() {
            return flows::attempt(self.client, self.reached()?, TRIAL, timeout);
        }
        match (self.workload.protocol, self.workload.amount) {
            (Protocol::Stream, _) => self.send(Amount::Bytes(TRIAL), timeout),
            (_, Some(_)) => self.write(TRIAL, [None, None], timeout),
            (_, None) => self.fetch(TRIAL, timeout),
        }
    }

    /// Makes a transfer of the workload. A stream may take `timeout` longer than it is to last.
    ///
    /// # Errors
    /// The client's, or what arrived is not what was sent.
    pub fn transfer(&self, timeout: Duration) -> anyhow::Result<Transfer> {
        if let Some(receiver) = self.receiver {
            return self.carry(receiver);
        }
        match (self.time, self.workload.amount) {
            (Some(time), _) => self.send(Amount::Time(time), time + timeout),
            (None, Some(amount)) => self.write(amount.0, [self.workload.pause, self.workload.cap], timeout),
            (None, None) => self.fetch(self.workload.file.context("the workload has nothing to transfer")?.0, timeout),
        }
    }

    /// Fetches the file of so many bytes.
    ///
    /// # Errors
    /// The client's, or what arrived is not what was sent.
    pub fn fetch(&self, bytes: u64, timeout: Duration) -> anyhow::Result<Transfer> {
        let content = self.files.all.get(&bytes).context("a file that nobody has made")?;
        let cap = self.workload.cap.map(|cap| cap.0);
        let url = server::url(self.workload.protocol, self.server, content);
        let (client, agent, via) = (self.client, self.workload.agent, self.via);
        let rate = self.workload.client_rate;
        transfer::fetch(transfer::Request { client, agent, url: &url, via, content, timeout, rate, cap })
    }

    fn send(&self, amount: Amount, timeout: Duration) -> anyhow::Result<Transfer> {
        let (client, server, folder) = (self.client, self.reached()?, self.folder);
        stream::send(stream::Request { client, server, amount, timeout, folder })
    }

    fn write(&self, amount: u64, [pause, cap]: [Option<Span>; 2], timeout: Duration) -> anyhow::Result<Transfer> {
        let (client, server, folder) = (self.client, self.reached()?, self.folder);
        let block = self.workload.block.context("blocks of no size")?.0;
        blocks::write(blocks::Request { client, server, amount, block, pause, cap, timeout, folder })
    }

    fn carry(&self, receiver: &Receiver) -> anyhow::Result<Transfer> {
        let (client, server, short) = (self.client, self.reached()?, self.workload.short);
        let (connections, time) = self.workload.connections.zip(self.time).context("flows without a number or time")?;
        let warm_up = self.workload.warm_up.map_or(Duration::ZERO, |warm_up| warm_up.0);
        anyhow::ensure!(warm_up < time, "all of {time:?} would be the warm-up of {warm_up:?}: a longer --time");
        flows::carry(receiver, flows::Request { client, server, connections, short, time, warm_up })
    }

    /// Where a program connects to that knows nothing of proxies.
    fn reached(&self) -> anyhow::Result<SocketAddrV4> {
        match self.via {
            Via::Direct => Ok(SocketAddrV4::new(self.server, self.workload.protocol.port())),
            Via::Forwarder(relay) => Ok(relay),
            Via::Socks(_) | Via::Http(_) | Via::Tunnel(_) => anyhow::bail!("the client knows no proxies"),
        }
    }
}
