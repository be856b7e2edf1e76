//! The client side of a report connection: connects to one relay, queries the relay every few seconds, and probes the
//! section to the relay while no session measures it.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::addr::{ClientAddr, Target};
use ekiden_proto::cause::Cause;
use ekiden_proto::event::Event;
use ekiden_proto::key::PublicKey;
use ekiden_proto::path::prefix::Prefix;
use ekiden_proto::wire::section::report::{MAX_PROBE, ProbeTrain, ReportMessage, ReportQuery};
use ekiden_proto::wire::section::{OpenAnswer, OpenFailure, Purpose, open};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::report_clients::CurrentContext;
use super::report_server::ReportConnection;
use super::{EstimateStore, PeerId};
use crate::config::{Hop, Peering};
use crate::dial::section::{self, OpenTarget, OutgoingContext};
use crate::dial::{OpenParams, ReadyConnection};
use crate::events::Events;
use crate::pump::{RecordCipher, abort};

/// Interval of queries for the reports of a relay.
const QUERY_INTERVAL: Duration = Duration::from_secs(3);

/// Interval of probes of a section without traffic. 16 KiB in each direction amount to 22 kbit/s, or twice as much if
/// both sides probe.
const PROBE_INTERVAL: Duration = Duration::from_secs(12);

/// Timeout of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Delays before the next connection: after a relay that is down or busy, and after a relay that does not support
/// reports.
const RETRY_DELAY: Duration = Duration::from_secs(5);
const UNSUPPORTED_RETRY_DELAY: Duration = Duration::from_secs(600);

/// The end of a report connection.
enum ReportCallEnd {
    /// The relay cannot be reached, does not answer in time, has no place for the connection, or the connection has
    /// failed.
    Broken,
    /// The peer does not support reports.
    Unsupported,
}

/// Queries `hop`, and connects again after each failure, until this future is dropped.
pub async fn run(hop: Arc<Hop>, context: Rc<CurrentContext>, estimates: Arc<EstimateStore>, events: Arc<Events>) {
    let Some(peering) = hop.peering() else { return };
    let mut has_warned = false;
    loop {
        let pause = match run_once(&hop, peering, &context, &estimates).await {
            ReportCallEnd::Broken => RETRY_DELAY,
            ReportCallEnd::Unsupported => {
                if !has_warned {
                    let message = format!(
                        "relay {hop} reports no estimates of its sections: upgrade ekiden on that relay for better \
                         path choices"
                    );
                    events.emit(&Event::Warning { message });
                }
                has_warned = true;
                UNSUPPORTED_RETRY_DELAY
            }
        };
        sleep(pause).await;
    }
}

async fn run_once(
    hop: &Arc<Hop>,
    peering: &Peering,
    context: &Rc<CurrentContext>,
    estimates: &Arc<EstimateStore>,
) -> ReportCallEnd {
    let Ok((stream, cipher)) = dial_and_open(hop, peering, context, Purpose::Report, true).await else {
        return ReportCallEnd::Broken;
    };
    let Ok(answer) = timeout(ANSWER_TIMEOUT, cipher.next_record(&stream)).await else { return ReportCallEnd::Broken };
    let outcome = answer.ok().and_then(|record| Some(OpenAnswer::read(&record.record[record.plaintext]).ok()?.outcome));
    match outcome {
        Some(Ok(())) => {}
        Some(Err(OpenFailure { cause: Cause::Exhausted, .. })) => return ReportCallEnd::Broken,
        // A relay of a version without reports closes the connection.
        _ => return ReportCallEnd::Unsupported,
    }
    let mut client = ReportClient {
        connection: ReportConnection::new(stream, &cipher, peering.key, true),
        key: peering.key,
        cursor: None,
        target_probes: JoinSet::new(),
    };
    // After any error `run` connects again.
    let _: io::Result<()> = client.run(estimates, hop, context).await;
    ReportCallEnd::Broken
}

struct ReportClient<'a> {
    connection: ReportConnection<'a>,
    /// The key of the relay.
    key: PublicKey,
    /// The last prefix of the previous query.
    cursor: Option<Prefix>,
    /// The running probes of targets.
    target_probes: JoinSet<()>,
}

impl ReportClient<'_> {
    async fn run(
        &mut self,
        estimates: &Arc<EstimateStore>,
        hop: &Arc<Hop>,
        context: &Rc<CurrentContext>,
    ) -> io::Result<()> {
        loop {
            let started_at = Instant::now();
            self.query(estimates).await?;
            if estimates.needs_probe(PeerId::Relay(self.key), PROBE_INTERVAL) {
                self.probe(estimates).await?;
            }
            self.start_target_probes(estimates, hop, context);
            tokio::time::sleep_until(started_at + QUERY_INTERVAL).await;
        }
    }

    /// Starts the pending probes of targets, unless earlier probes still run. The probes are tasks, because a probe of
    /// a silent target lasts until `timeouts.connect`, and the relay closes a connection without queries.
    fn start_target_probes(&mut self, estimates: &Arc<EstimateStore>, hop: &Arc<Hop>, context: &Rc<CurrentContext>) {
        while self.target_probes.try_join_next().is_some() {}
        if !self.target_probes.is_empty() {
            return;
        }
        for target in estimates.take_target_probes(&self.key) {
            let (hop, context, estimates) = (Arc::clone(hop), Rc::clone(context), Arc::clone(estimates));
            self.target_probes.spawn_local(probe_target(target, hop, context, estimates));
        }
    }

    async fn query(&mut self, estimates: &EstimateStore) -> io::Result<()> {
        let (prefixes, end) = estimates.requested_prefixes(self.cursor);
        self.cursor = end;
        self.connection.send(&ReportMessage::Query(ReportQuery { neighbours: true, prefixes })).await?;
        match self.connection.receive(ANSWER_TIMEOUT).await? {
            ReportMessage::Reply(entries) => {
                estimates.record_report(self.key, &entries);
                Ok(())
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    async fn probe(&mut self, estimates: &EstimateStore) -> io::Result<()> {
        self.connection.send(&ReportMessage::Probe(ProbeTrain { bytes: MAX_PROBE, reply_bytes: MAX_PROBE })).await?;
        match self.connection.receive(ANSWER_TIMEOUT).await? {
            ReportMessage::Probe(_) => {
                self.connection.record_sample(estimates);
                Ok(())
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Probes a target by a relay, and records the connect time.
async fn probe_target(target: SocketAddr, hop: Arc<Hop>, context: Rc<CurrentContext>, estimates: Arc<EstimateStore>) {
    let Some(peering) = hop.peering() else { return };
    if let Some(took) = request_connect_time(target, &hop, peering, &context).await {
        estimates.record_target_probe(peering.key, target, took);
    }
}

/// Requests a connection to a target from a relay. Returns the connect time that the relay reports.
async fn request_connect_time(
    target: SocketAddr,
    hop: &Arc<Hop>,
    peering: &Peering,
    context: &CurrentContext,
) -> Option<Duration> {
    let purpose = Purpose::Stream(Target::from(target));
    let (stream, cipher) = dial_and_open(hop, peering, context, purpose, peering.encrypt).await.ok()?;
    let record = timeout(context.get().config.timeouts.connect, cipher.next_record(&stream)).await.ok()?.ok()?;
    abort(&stream);
    let answer = OpenAnswer::read(&record.record[record.plaintext]).ok()?;
    let has_answer = match answer.outcome {
        Ok(()) => true,
        Err(OpenFailure { cause, relay, is_about_hop: of_hop }) => cause == Cause::Refused && relay == 0 && !of_hop,
    };
    answer.relay_times.first().copied().filter(|_| has_answer)
}

/// Dials the first reachable member of a relay, and sends OPEN for `purpose`.
async fn dial_and_open(
    hop: &Arc<Hop>,
    peering: &Peering,
    context: &CurrentContext,
    purpose: Purpose,
    encrypt: bool,
) -> Result<(TcpStream, RecordCipher), ReportCallEnd> {
    let context = context.get();
    let config = &context.config;
    let outgoing =
        OutgoingContext { names: &context.names, congestion: &config.congestion, marks: config.needed_marks() };
    let mut ready = Err(ReportCallEnd::Broken);
    for member in hop.members() {
        let deadline = Instant::now() + config.timeouts.connect;
        ready = section::prepare(member, peering, None, outgoing, deadline).await.map_err(|_| ReportCallEnd::Broken);
        if ready.is_ok() {
            break;
        }
    }
    let ReadyConnection { mut stream, link, .. } = ready?;
    let client = ClientAddr(stream.local_addr().map_err(|_| ReportCallEnd::Broken)?);
    let open_params =
        OpenParams { trace: None, client, early: false, encrypt, can_frame: false, hops_left: open::MAX_HOPS };
    let cipher = link.cipher;
    let destination = OpenTarget { path: Vec::new(), purpose, encrypt, reusable: false };
    section::open(&mut stream, &cipher, &open_params, destination).await.map_err(|_| ReportCallEnd::Broken)?;
    if encrypt {
        cipher.allow_read_ahead();
    }
    Ok((stream, cipher))
}
