//! The thread that keeps a report connection to every relay that may be on a path. The thread runs on a relay that
//! selects paths, and on any other relay after the first query from another relay: the querying relay also needs
//! estimates of the sections after this relay.

use std::cell::RefCell;
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

/// The current configuration; `None` before the first one is applied.
type ReportClientsConfig = Option<Arc<Config>>;

/// The report connections of this relay.
#[derive(Debug)]
pub struct ReportClients {
    config: watch::Sender<ReportClientsConfig>,
    /// Whether another relay has sent a query since this relay started.
    is_queried: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The context for dialling, which a reload replaces.
pub struct CurrentContext(RefCell<Rc<ReportContext>>);

impl CurrentContext {
    /// Returns the context of the configuration in force.
    pub fn get(&self) -> Rc<ReportContext> {
        Rc::clone(&self.0.borrow())
    }
}

/// The context for dialling under one configuration.
pub struct ReportContext {
    /// The configuration.
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
    /// Applies a configuration: from now on, only the relays of `config` are queried.
    ///
    /// # Errors
    /// The thread cannot be created.
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

    /// Records a query from another relay, and starts the thread at the first one.
    ///
    /// # Errors
    /// The thread cannot be created.
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

    /// Closes all report connections, and ends the thread.
    pub fn close(&self) {
        self.config.send_replace(None);
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // An error means that the thread has panicked, so it has ended.
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

/// The tasks of the report connections.
#[derive(Default)]
struct ReportTasks {
    by_key: HashMap<PublicKey, ReportTask>,
    /// The context of all tasks; `None` before the first configuration.
    context: Option<Rc<CurrentContext>>,
}

struct ReportTask {
    hop: Arc<Hop>,
    task: Task<()>,
}

impl ReportTasks {
    /// Connects to the relays of `config`; connections to unchanged relays stay open.
    fn apply_config(&mut self, config: Arc<Config>, estimates: &Arc<EstimateStore>, events: &Arc<Events>) {
        let relays: HashMap<_, _> =
            config.relays.iter().filter_map(|hop| Some((hop.peering()?.key, Arc::clone(hop)))).collect();
        self.by_key.retain(|key, task| relays.get(key).is_some_and(|hop| *hop == task.hop));
        let new_context = Rc::new(ReportContext { names: Resolver::new(&config.dns_servers), config });
        let context =
            self.context.get_or_insert_with(|| Rc::new(CurrentContext(RefCell::new(Rc::clone(&new_context)))));
        context.0.replace(new_context);
        for (key, hop) in relays {
            self.by_key.entry(key).or_insert_with(|| {
                let task = spawn_local(report_client::run(
                    Arc::clone(&hop),
                    Rc::clone(context),
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
