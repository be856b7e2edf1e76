//! Where a session comes in: the listener and all that a session needs from there, and the bounds on how many come in.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::addr::ClientAddr;
use ekiden_proto::event::{End, Event};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::config::{Config, Kind, Listener};
use crate::dial::Names;
use crate::ingress::{section, transparent};
use crate::pump::{PipePool, Totals, abort};
use crate::session::{self, Came, Session};
use crate::shared::Shared;
use crate::worker::Worker;

/// How long accepting pauses when it cannot go on, unless a session ends first.
const PAUSE: Duration = Duration::from_millis(100);

/// One way in, on one thread, under one configuration.
pub struct Entrance {
    /// The thread's state.
    pub worker: Rc<Worker>,
    /// The configuration in force when the session began.
    pub config: Arc<Config>,
    /// The listener.
    pub listener: Arc<Listener>,
    names: Rc<Names>,
    totals: Arc<Totals>,
    most_sessions: usize,
    /// Whether a gate bounds how many come in.
    gated: bool,
}

impl Entrance {
    /// Sessions that come in by `listener` from now on.
    pub fn new(
        worker: &Rc<Worker>,
        config: &Arc<Config>,
        listener: Arc<Listener>,
        names: &Rc<Names>,
        most_sessions: usize,
        gated: bool,
    ) -> Self {
        Self {
            worker: Rc::clone(worker),
            config: Arc::clone(config),
            names: Rc::clone(names),
            totals: worker.shared.metrics.totals(&listener.name),
            most_sessions,
            gated: gated && listener.kind.is_transparent(),
            listener,
        }
    }

    /// The log and the metrics.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.worker.shared
    }

    /// The thread's pipes.
    pub fn pipes(&self) -> &PipePool {
        &self.worker.pipes
    }

    /// The listener's byte counters.
    pub fn totals(&self) -> Arc<Totals> {
        Arc::clone(&self.totals)
    }

    /// The thread's resolver.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Tells the operator.
    pub fn warn(&self, message: String) {
        self.shared().emit(&Event::Warning { message });
    }

    /// Waits until there is a place for one more session.
    pub async fn wait_for_place(&self) {
        if !self.gated && self.shared().open_sessions() >= self.most_sessions {
            let listener = self.listener.name.clone();
            self.shared().emit(&Event::AcceptPaused { listener: listener.clone(), reason: "session_limit" });
            while self.shared().open_sessions() >= self.most_sessions {
                self.rest().await;
            }
            self.shared().emit(&Event::AcceptResumed { listener });
        }
    }

    /// Lets some time pass before the next attempt to accept.
    pub async fn pause(&self, reason: &'static str) {
        let listener = self.listener.name.clone();
        self.shared().emit(&Event::AcceptPaused { listener: listener.clone(), reason });
        self.rest().await;
        self.shared().emit(&Event::AcceptResumed { listener });
    }

    /// Until a session of this thread ends, or for a moment: another thread's session may have.
    async fn rest(&self) {
        tokio::select! {
            () = self.worker.session_ended.notified() => {}
            () = sleep(PAUSE) => {}
        }
    }

    /// Takes a connection: a client's is a session at once, a relay's when it opens one.
    pub fn admit(self: &Rc<Self>, client: TcpStream, address: SocketAddr) {
        let address = ClientAddr(canonical(address));
        if self.listener.kind.is_transparent() {
            return self.admit_caught(client, address);
        }
        self.shared().enter();
        if self.listener.kind == Kind::Section {
            tokio::task::spawn_local(section::wait(Rc::clone(self), client, address));
        } else {
            self.begin(client, address, Came::Itself);
        }
    }

    /// Takes a connection that the rules have caught; if the gate has let it in, it has a place already.
    fn admit_caught(self: &Rc<Self>, client: TcpStream, address: ClientAddr) {
        let ends = transparent::ends(self, &client, address);
        let let_in = ends.and_then(|ends| self.shared().held.accept(ends));
        let has_place = let_in.is_some();
        let caught = Came::Caught { ends, ahead: let_in.flatten() };
        if has_place {
            tokio::task::spawn_local(session::run(Session::open(Rc::clone(self), client, address, caught)));
        } else {
            self.shared().enter();
            self.begin(client, address, caught);
        }
    }

    /// Takes a place for a session that has no connection yet.
    ///
    /// # Errors
    /// Why there is none.
    pub fn enter(&self, client: IpAddr) -> Result<(), &'static str> {
        if self.shared().open_sessions() >= self.most_sessions {
            return Err("session_limit");
        }
        if self.config.limits.sessions_per_client.is_some_and(|most| !self.shared().enter_client(client, most)) {
            return Err("client_limit");
        }
        self.shared().enter();
        Ok(())
    }

    /// Begins a session.
    pub fn begin(self: &Rc<Self>, client: TcpStream, address: ClientAddr, came: Came) {
        if let Some(most) = self.config.limits.sessions_per_client
            && !self.shared().enter_client(address.0.ip(), most)
        {
            abort(&client);
            Session::open(Rc::clone(self), client, address, came).ends(End::ClientLimit);
            return;
        }
        tokio::task::spawn_local(session::run(Session::open(Rc::clone(self), client, address, came)));
    }

    /// Ends a connection that has not become a session, with the closing event of one.
    pub fn turn_away(self: &Rc<Self>, client: TcpStream, address: ClientAddr, end: End, detail: Option<String>) {
        let session = Session::open(Rc::clone(self), client, address, Came::Itself);
        session.remarks(detail);
        session.ends(end);
    }

    /// Gives back the place of a session.
    pub fn left(&self, client: IpAddr, was_admitted: bool) {
        self.shared().leave();
        if was_admitted && self.config.limits.sessions_per_client.is_some() {
            self.shared().leave_client(client);
        }
        self.worker.session_ended.notify_one();
    }
}

/// A dual-stack socket sees IPv4 addresses as ::ffff:a.b.c.d.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
