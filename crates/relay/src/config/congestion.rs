//! Congestion controls by name: those that profiles request, those that a provider must load, and the replacement where
//! one is missing. The provider itself is not known here.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::event::{CongestionStatus, Event};
use ekiden_proto::profile::{Algorithm, AppliedSetting, CompoundTcp, Outcome, Profile, Setting};
use ekiden_proto::resume::{Jump, ResumeGrant};
use ekiden_proto::tuning::{SHORT_PATH_CONTROL, is_cheap_control};
use ekiden_sys::congestion;
use ekiden_sys::sockopt::{self, SocketRole};
use serde::Serialize;
use socket2::{Domain, Socket, Type};
use tokio::time::{Instant, sleep};

use super::Config;

/// How long the kernel may take until a congestion control is gone whose owner has ended.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(2);

/// How often that is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Sees to it that the kernel has the congestion control of a name, or says why it cannot.
pub type ControlProvider<'a> = &'a dyn Fn(&str) -> Result<ProvidedControl, String>;

/// A congestion control that the kernel has.
#[derive(Debug)]
pub struct ProvidedControl {
    /// The provider that loaded it, as text.
    pub from: String,
    /// It is there for as long as this is; nothing where that is not in our hands.
    pub control: Option<Box<dyn CongestionHandle>>,
}

/// A congestion control that can be talked with.
pub trait CongestionHandle: Debug + Send + Sync {
    /// The state that the congestion control reports for one connection, if it reports any.
    fn telemetry(&self, socket: BorrowedFd<'_>) -> Option<Telemetry>;

    /// Asks it for something, for one connection or for all that a listener accepts.
    ///
    /// # Errors
    /// Why it cannot be asked, in words.
    fn set_options(&self, socket: BorrowedFd<'_>, request: CompoundTcp) -> Result<(), String>;

    /// Whether a connection can begin to send with a remembered window.
    fn can_resume(&self) -> bool {
        false
    }

    /// Has the next transmission of a connection begin with a remembered window.
    ///
    /// # Errors
    /// Why not, in words.
    fn request_resume(&self, _socket: BorrowedFd<'_>, _grant: ResumeGrant) -> Result<(), String> {
        Err("this congestion control cannot resume".to_owned())
    }

    /// The outcome of the last request of a connection.
    fn resume_outcome(&self, _socket: BorrowedFd<'_>) -> Option<Jump> {
        None
    }
}

/// The report of a congestion control about one connection, once a round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Telemetry {
    /// Congestion window, in packets.
    pub window: u32,
    /// The part of it that losses govern, packets.
    pub loss_window: u32,
    /// The part of it that delay governs, packets.
    pub delay_window: u32,
    /// The round trip without queues.
    #[serde(skip)]
    pub base_rtt: Duration,
    /// Packets of the connection in the path's queues.
    pub queued: u32,
    /// As many of them are congestion; packets.
    pub gamma: u32,
    /// Round trips so far.
    pub rounds: u32,
    /// Reductions for loss or a mark.
    pub losses: u32,
    /// Retransmission timeouts so far.
    pub timeouts: u32,
}

/// Those that one configuration asks for; they stay in the kernel while sessions of it are open.
#[derive(Debug, Clone, Default)]
pub struct CongestionControls {
    controls: BTreeMap<String, Arc<RequestedControl>>,
    /// The system's own, if it is costly on short paths.
    costly_default: Option<Arc<str>>,
}

/// One that a profile asks for.
#[derive(Debug)]
struct RequestedControl {
    congestion: CongestionStatus,
    control: Option<Box<dyn CongestionHandle>>,
}

impl CongestionControls {
    /// Makes the congestion controls of `config` available in the kernel, and reports the results as events. Those of
    /// `previous` stay loaded.
    pub fn obtain(config: &Config, previous: &Self, provide: ControlProvider<'_>, emit: impl Fn(&Event)) -> Self {
        let mut controls = BTreeMap::new();
        for Algorithm(name) in config.profiles().filter_map(|profile| profile.congestion()) {
            if controls.contains_key(name) {
                continue;
            }
            let requested = RequestedControl::obtain(name, previous.controls.get(name), provide);
            if requested.congestion.is_worth_logging() {
                emit(&Event::Congestion(requested.congestion.clone()));
            }
            controls.insert(name.clone(), requested);
        }
        let costly_default = congestion::system_default().ok().filter(|default| !is_cheap_control(default));
        Self { controls, costly_default: costly_default.map(Arc::from) }
    }

    /// A single control, which is available.
    #[cfg(test)]
    pub fn with_control(name: &str, control: Box<dyn CongestionHandle>) -> Self {
        let (from, in_use) = (Some("a test".to_owned()), name.to_owned());
        let congestion = CongestionStatus { name: name.to_owned(), in_use, from, why: None };
        let requested = RequestedControl { congestion, control: Some(control) };
        Self { controls: [(name.to_owned(), Arc::new(requested))].into(), costly_default: None }
    }

    /// The controls of a system whose default is `name`, which is costly on short paths.
    #[cfg(test)]
    pub fn with_costly_default(name: &str) -> Self {
        Self { costly_default: Some(name.into()), ..Self::default() }
    }

    /// [`sockopt::apply`], and the settings that are no socket options.
    pub fn apply(&self, socket: BorrowedFd<'_>, profile: &Profile, role: SocketRole) {
        sockopt::apply(socket, profile, role);
        // Already reported the first time.
        let _ = self.set_auto_congestion(socket, profile);
        let _ = self.set_control_options(socket, profile);
    }

    /// The congestion control for sections of `profile` whose path turns out to be no short one; `None` where they have it
    /// from the beginning.
    #[must_use]
    pub fn long_path_control(&self, profile: &Profile) -> Option<Arc<str>> {
        self.costly_default.as_ref().filter(|_| profile.has_auto_congestion()).cloned()
    }

    /// The system's own congestion control, if sections of short paths have another one.
    #[must_use]
    pub fn costly_default(&self) -> Option<Arc<str>> {
        self.costly_default.clone()
    }

    /// Has a socket begin as on a short path, if the profile says so.
    fn set_auto_congestion(&self, socket: BorrowedFd<'_>, profile: &Profile) -> io::Result<()> {
        if self.costly_default.is_some() && profile.has_auto_congestion() {
            return congestion::set(socket, SHORT_PATH_CONTROL);
        }
        Ok(())
    }

    /// [`sockopt::apply_and_report`], and the settings that are no socket options.
    #[must_use]
    pub fn apply_and_report(&self, socket: BorrowedFd<'_>, profile: &Profile, role: SocketRole) -> Vec<AppliedSetting> {
        let mut report = sockopt::apply_and_report(socket, profile, role);
        if profile.has_auto_congestion() {
            let result = self.set_auto_congestion(socket, profile);
            let outcome = result.map_or_else(|error| Outcome::Unsupported(error.to_string()), |()| Outcome::Applied);
            let auto = |applied: &&mut AppliedSetting| matches!(applied.setting, Setting::Congestion(_));
            report.iter_mut().filter(auto).for_each(|applied| applied.outcome = outcome.clone());
        }
        if let Some(result) = self.set_control_options(socket, profile) {
            let outcome = result.map_or_else(Outcome::Unsupported, |()| Outcome::Applied);
            let is_gamma = |applied: &&mut AppliedSetting| {
                matches!(applied.setting, Setting::CtcpGamma(_) | Setting::CtcpAutoGamma(_))
            };
            report.iter_mut().filter(is_gamma).for_each(|applied| applied.outcome = outcome.clone());
        }
        report
    }

    /// Sets the options of the congestion control itself; `None` when the profile sets none.
    fn set_control_options(&self, socket: BorrowedFd<'_>, profile: &Profile) -> Option<Result<(), String>> {
        let request = profile.compound_tcp()?;
        let requested = self.controls.get(&profile.congestion()?.0)?;
        Some(match &requested.control {
            Some(control) => control.set_options(socket, request),
            None => Err("requires the ctcp of ekiden, loaded by this relay or by `ekiden cc load ctcp`".to_owned()),
        })
    }

    /// The congestion control of a connection, if it can begin with a remembered window.
    #[must_use]
    pub fn resuming(&self, socket: BorrowedFd<'_>) -> Option<&dyn CongestionHandle> {
        let can_resume =
            |requested: &Arc<RequestedControl>| requested.control.as_ref().is_some_and(|it| it.can_resume());
        if !self.controls.values().any(can_resume) {
            // Most relays ask for none, and save the system call.
            return None;
        }
        let requested =
            self.controls.get(&congestion::of_socket(socket).ok()?).filter(|requested| can_resume(requested))?;
        requested.control.as_deref()
    }

    /// The telemetry of the connection's congestion control.
    #[must_use]
    pub fn telemetry(&self, name: &str, socket: BorrowedFd<'_>) -> Option<Telemetry> {
        self.controls.get(name)?.control.as_ref()?.telemetry(socket)
    }

    /// Waits whether the kernel removes a control whose loader has ended. The removal takes the kernel some time.
    pub async fn wait_removed(&self) -> bool {
        let foreign =
            |requested: &&Arc<RequestedControl>| requested.congestion.is_worth_logging() && requested.is_in_use();
        let names: Vec<_> =
            self.controls.values().filter(foreign).map(|requested| &requested.congestion.name).collect();
        let deadline = Instant::now() + REMOVAL_TIMEOUT;
        while !names.is_empty() && Instant::now() < deadline {
            if names.iter().any(|name| congestion::check_available(name).is_err()) {
                return true;
            }
            sleep(POLL_INTERVAL).await;
        }
        false
    }

    /// The result for each requested control.
    #[must_use]
    pub fn describe(&self) -> Vec<CongestionStatus> {
        self.controls.values().map(|requested| requested.congestion.clone()).collect()
    }
}

impl RequestedControl {
    /// Whether sections use the requested control.
    fn is_in_use(&self) -> bool {
        self.congestion.in_use == self.congestion.name
    }

    fn obtain(name: &str, previous: Option<&Arc<Self>>, provide: ControlProvider<'_>) -> Arc<Self> {
        let choice = congestion::check_available(name);
        if let (Ok(()), Some(previous)) = (&choice, previous.filter(|previous| previous.is_in_use())) {
            return Arc::clone(previous);
        }
        let provided = match choice {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(RESTRICTED.to_owned()),
            _ => provide(name),
        };
        let (from, control, why) = match provided {
            Ok(ProvidedControl { from, control }) => (Some(from), control, None),
            Err(why) => (None, None, Some(why)),
        };
        let congestion = CongestionStatus { name: name.to_owned(), in_use: in_use(name), from, why };
        Arc::new(Self { congestion, control })
    }
}

const RESTRICTED: &str =
    "its selection requires CAP_NET_ADMIN, or its name in sysctl net.ipv4.tcp_allowed_congestion_control";

/// The congestion control of a socket after a request for `name`.
fn in_use(name: &str) -> String {
    let mut profile = Profile::default();
    profile.set(Setting::Congestion(Algorithm(name.to_owned())));
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None);
    let result = socket.and_then(|socket| {
        sockopt::apply(socket.as_fd(), &profile, SocketRole::Dialer);
        congestion::of_socket(&socket)
    });
    result.unwrap_or_else(|error| format!("unknown: {error}"))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Mutex;

    use super::*;
    use crate::config::read;

    /// No provider has this control; bbr and cubic are its nearest replacements.
    const ABSENT: &str = "hybla";

    fn config(congestion: &str) -> Config {
        let url = "tcp://127.0.0.1:0/127.0.0.1:9?profile=test";
        let text = format!("version = 1\n[profile.test]\n{congestion}\n");
        let file = std::env::temp_dir().join(format!("ekiden-congestion-{}-{:p}.toml", std::process::id(), &text));
        std::fs::write(&file, text).unwrap();
        let flags = read::Flags { listen: vec![url.to_owned()], ..read::Flags::default() };
        let config = read::load([&*file], &flags);
        std::fs::remove_file(file).unwrap();
        config.unwrap_or_else(|mistakes| panic!("{mistakes}"))
    }

    fn obtain(
        config: &Config,
        before: &CongestionControls,
        provide: ControlProvider<'_>,
    ) -> (CongestionControls, Vec<CongestionStatus>) {
        let reported = RefCell::new(Vec::new());
        let controls = CongestionControls::obtain(config, before, provide, |event| match event {
            Event::Congestion(congestion) => reported.borrow_mut().push(congestion.clone()),
            other => panic!("{other:?}"),
        });
        (controls, reported.into_inner())
    }

    fn from_kernel(_: &str) -> Result<ProvidedControl, String> {
        Ok(ProvidedControl { from: CongestionStatus::KERNEL.to_owned(), control: None })
    }

    /// A provider that records its requests.
    #[derive(Debug, Default, Clone)]
    struct Recorder(Arc<Mutex<Vec<CompoundTcp>>>);

    impl CongestionHandle for Recorder {
        fn telemetry(&self, _: BorrowedFd<'_>) -> Option<Telemetry> {
            None
        }

        fn set_options(&self, _: BorrowedFd<'_>, request: CompoundTcp) -> Result<(), String> {
            self.0.lock().unwrap().push(request);
            Ok(())
        }
    }

    #[test]
    fn kernel_provided_control_emits_no_event() {
        let (controls, reported) =
            obtain(&config(r#"congestion = "reno""#), &CongestionControls::default(), &from_kernel);
        assert_eq!(reported, []);
        assert_eq!(controls.describe()[0].in_use, "reno");
    }

    #[test]
    fn unavailable_control_is_replaced_and_the_reason_is_reported() {
        let refuse = |_: &str| Err("no clang in sight".to_owned());
        let (controls, reported) =
            obtain(&config(&format!("congestion = {ABSENT:?}")), &CongestionControls::default(), &refuse);
        let [reported] = reported.as_slice() else { panic!("{reported:?}") };
        assert_eq!((reported.name.as_str(), reported.why.as_deref()), (ABSENT, Some("no clang in sight")));
        assert!(["bbr", "cubic"].contains(&reported.in_use.as_str()), "{reported:?}");
        assert_eq!(controls.describe().as_slice(), std::slice::from_ref(reported));
    }

    /// The relay must not unload and reload a control while connections arrive.
    #[test]
    fn provided_control_survives_a_reload() {
        let config = config(r#"congestion = "reno""#);
        let provider =
            |_: &str| Ok(ProvidedControl { from: "us".to_owned(), control: Some(Box::new(Recorder::default())) });
        let (before, reported) = obtain(&config, &CongestionControls::default(), &provider);
        assert_eq!(reported.len(), 1);
        let (after, reported) = obtain(&config, &before, &|_| panic!("the provider was called again"));
        assert_eq!(after.describe(), before.describe());
        assert_eq!(reported.len(), 1, "a reload reports the control in use again");
    }

    #[test]
    fn control_options_are_applied_and_reported() {
        let mut profile = Profile::named("test");
        for (key, value) in [("congestion", "ctcp"), ("ctcp_gamma", "12"), ("ctcp_auto_gamma", "true")] {
            profile.set(Setting::read(key, value).unwrap());
        }
        let control_handle = Recorder::default();
        let congestion = CongestionStatus { name: "ctcp".into(), in_use: "ctcp".into(), from: None, why: None };
        let with = |control| {
            let asked = RequestedControl { congestion: congestion.clone(), control };
            CongestionControls {
                controls: BTreeMap::from([("ctcp".to_owned(), Arc::new(asked))]),
                costly_default: None,
            }
        };
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let outcomes = |controls: CongestionControls| -> Vec<Outcome> {
            let report = controls.apply_and_report(socket.as_fd(), &profile, SocketRole::Dialer);
            report.into_iter().skip(1).map(|applied| applied.outcome).collect()
        };
        assert_eq!(outcomes(with(Some(Box::new(control_handle.clone())))), [Outcome::Applied, Outcome::Applied]);
        assert_eq!(*control_handle.0.lock().unwrap(), [CompoundTcp { gamma: 12, auto_gamma: true }]);
        for outcome in outcomes(with(None)) {
            assert!(matches!(&outcome, Outcome::Unsupported(why) if why.contains("ekiden cc load ctcp")), "{outcome}");
        }
    }
}
