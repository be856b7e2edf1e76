//! The thread that keeps a report connection to every relay that may be on a path. A relay that selects paths has one,
//! and so has every other relay from its first question: a relay that asks needs the sections behind as well.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ekiden_proto::key::PublicKey;
use tokio::sync::watch;
use tokio::task::{JoinHandle as Task, LocalSet, spawn_local};

use super::EstimateStore;
use super::report_client;
use crate::config::{Config, Hop};
use crate::dial::Resolver;
use crate::events::Events;

/// The configuration in force; none before there is one.
type ReportClientsConfig = Option<Arc<Config>>;

/// The report connections of this relay.
#[derive(Debug)]
pub struct ReportClients {
    config: watch::Sender<ReportClientsConfig>,
    /// Whether another relay has asked since this one began.
    is_queried: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The context of dialling.
pub struct ReportContext {
    /// The configuration in force.
    pub config: Arc<Config>,
    /// The resolver of the thread.
    pub names: Resolver,
}

impl Default for ReportClients {
    fn default() -> Self {
        Self { config: watch::Sender::new(None), is_queried: AtomicBool::new(false), thread: Mutex::default() }
    }
}

impl ReportClients {
    /// Asks the relays of `config` from now on, and no others.
    ///
    /// # Errors
    /// The kernel's, when there are no more threads.
    pub fn apply_config(
        &self,
        config: &Arc<Config>,
        estimates: &Arc<EstimateStore>,
        events: &Arc<Events>,
    ) -> io::Result<()> {
        self.config.send_replace(Some(Arc::clone(config)));
        let is_needed = config.has_auto_route() || self.is_queried.load(Ordering::Relaxed);
        if is_needed { self.start(config, estimates, events) } else { Ok(()) }
    }

    /// Notes that another relay asks.
    ///
    /// # Errors
    /// The kernel's, when there are no more threads.
    pub fn on_query(&self, config: &Config, estimates: &Arc<EstimateStore>, events: &Arc<Events>) -> io::Result<()> {
        if self.is_queried.swap(true, Ordering::Relaxed) { Ok(()) } else { self.start(config, estimates, events) }
    }

    fn start(&self, config: &Config, estimates: &Arc<EstimateStore>, events: &Arc<Events>) -> io::Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() && self.config.borrow().is_some() && config.relays.iter().any(|hop| hop.is_section()) {
            *thread = Some(spawn_thread(self.config.subscribe(), Arc::clone(estimates), Arc::clone(events))?);
        }
        Ok(())
    }

    /// Ends all of them.
    pub fn close(&self) {
        self.config.send_replace(None);
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // One that panicked has ended as well.
            let _ = thread.join();
        }
    }
}

fn spawn_thread(
    mut config_receiver: watch::Receiver<ReportClientsConfig>,
    estimates: Arc<EstimateStore>,
    events: Arc<Events>,
) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("reports".to_owned());
    thread.spawn(move || {
        LocalSet::new().block_on(&runtime, async {
            let mut tasks = ReportTasks::default();
            loop {
                let config = config_receiver.borrow_and_update().clone();
                let Some(config) = config else { return };
                tasks.apply_config(config, &estimates, &events);
                if config_receiver.changed().await.is_err() {
                    return;
                }
            }
        });
    })
}

/// The tasks of the report connections, by the key of the relay.
#[derive(Default)]
struct ReportTasks(HashMap<PublicKey, ReportTask>);

struct ReportTask {
    hop: Arc<Hop>,
    task: Task<()>,
}

impl ReportTasks {
    /// Calls the relays of `config`; connections whose relay and path are unchanged stay.
    fn apply_config(&mut self, config: Arc<Config>, estimates: &Arc<EstimateStore>, events: &Arc<Events>) {
        let relays: HashMap<_, _> =
            config.relays.iter().filter_map(|hop| Some((hop.peering()?.key, Arc::clone(hop)))).collect();
        self.0.retain(|key, task| relays.get(key).is_some_and(|hop| *hop == task.hop));
        let context = Rc::new(ReportContext { names: Resolver::new(&config.dns_servers), config });
        for (key, hop) in relays {
            self.0.entry(key).or_insert_with(|| {
                let task = spawn_local(report_client::run(
                    Arc::clone(&hop),
                    Rc::clone(&context),
                    Arc::clone(estimates),
                    Arc::clone(events),
                ));
                ReportTask { hop, task }
            });
        }
    }
}

impl Drop for ReportTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}
