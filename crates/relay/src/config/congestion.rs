//! Congestion controls by name: those that profiles request, those that a provider must load, and the replacements of
//! missing ones. The provider itself is a parameter.

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

/// Maximum time to wait until the kernel removes a congestion control whose loader has ended.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval of checks for the removal.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Function that makes the congestion control of a name available in the kernel, or returns the reason why it cannot.
pub type ControlProvider<'a> = &'a dyn Fn(&str) -> Result<ProvidedControl, String>;

/// A congestion control that is available in the kernel.
#[derive(Debug)]
pub struct ProvidedControl {
    /// Description of the provider that loaded the congestion control.
    pub from: String,
    /// The congestion control stays loaded until this is dropped; `None` if the provider does not control that.
    pub control: Option<Box<dyn CongestionHandle>>,
}

/// Access to a congestion control that has options or telemetry.
pub trait CongestionHandle: Debug + Send + Sync {
    /// Returns the state of the congestion control for one connection, if it reports any.
    fn telemetry(&self, socket: BorrowedFd<'_>) -> Option<Telemetry>;

    /// Sets options for one connection, or for all connections that a listener accepts.
    ///
    /// # Errors
    /// Why the options cannot be set.
    fn set_options(&self, socket: BorrowedFd<'_>, request: CompoundTcp) -> Result<(), String>;

    /// Whether a connection can start with a remembered congestion window.
    fn can_resume(&self) -> bool {
        false
    }

    /// Requests that the next transmission of a connection starts with a remembered congestion window.
    ///
    /// # Errors
    /// Why the request cannot be made.
    fn request_resume(&self, _socket: BorrowedFd<'_>, _grant: ResumeGrant) -> Result<(), String> {
        Err("this congestion control cannot resume".to_owned())
    }

    /// Returns the outcome of the last request of a connection.
    fn resume_outcome(&self, _socket: BorrowedFd<'_>) -> Option<Jump> {
        None
    }
}

/// Report of a congestion control about one connection, updated once per round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Telemetry {
    /// Congestion window, in packets.
    pub window: u32,
    /// The loss-based part of the window, in packets.
    pub loss_window: u32,
    /// The delay-based part of the window, in packets.
    pub delay_window: u32,
    /// The round-trip time without queueing.
    #[serde(skip)]
    pub base_rtt: Duration,
    /// Number of packets of the connection in queues on the path.
    pub queued: u32,
    /// Number of queued packets that counts as congestion.
    pub gamma: u32,
    /// Number of round trips so far.
    pub rounds: u32,
    /// Number of window reductions after a loss or an ECN mark.
    pub losses: u32,
    /// Number of retransmission timeouts so far.
    pub timeouts: u32,
}

/// The congestion controls that one configuration requests. They stay loaded while sessions of that configuration are
/// open.
#[derive(Debug, Clone, Default)]
pub struct CongestionControls {
    controls: BTreeMap<String, Arc<RequestedControl>>,
    /// The system's default congestion control, if it is costly on short paths.
    costly_default: Option<Arc<str>>,
}

/// A congestion control that a profile requests.
#[derive(Debug)]
struct RequestedControl {
    congestion: CongestionStatus,
    control: Option<Box<dyn CongestionHandle>>,
}

impl CongestionControls {
    /// Makes the congestion controls of `config` available in the kernel, and reports the results as events. A
    /// control that is available and in use by `previous` is taken from there.
    pub fn obtain(config: &Config, previous: &Self, provide: ControlProvider<'_>, emit: impl Fn(&Event)) -> Self {
        let mut controls = BTreeMap::new();
        for name in config.requested_controls() {
            let requested = RequestedControl::obtain(name, previous.controls.get(name), provide);
            if requested.congestion.is_worth_logging() {
                emit(&Event::Congestion(requested.congestion.clone()));
            }
            controls.insert(name.to_owned(), requested);
        }
        let costly_default = congestion::system_default().ok().filter(|default| !is_cheap_control(default));
        Self { controls, costly_default: costly_default.map(Arc::from) }
    }

    /// For tests: a single control, which is available.
    #[cfg(test)]
    pub fn with_control(name: &str, control: Box<dyn CongestionHandle>) -> Self {
        let (from, in_use) = (Some("a test".to_owned()), name.to_owned());
        let congestion = CongestionStatus { name: name.to_owned(), in_use, from, why: None };
        let requested = RequestedControl { congestion, control: Some(control) };
        Self { controls: [(name.to_owned(), Arc::new(requested))].into(), costly_default: None }
    }

    /// For tests: the controls of a system whose default is `name`, which is costly on short paths.
    #[cfg(test)]
    pub fn with_costly_default(name: &str) -> Self {
        Self { costly_default: Some(name.into()), ..Self::default() }
    }

    /// Applies a profile with [`sockopt::apply`], and the settings of it that are not socket options.
    pub fn apply(&self, socket: BorrowedFd<'_>, profile: &Profile, role: SocketRole) {
        sockopt::apply(socket, profile, role);
        // Errors were already reported by the first `apply_and_report`.
        let _ = self.set_auto_congestion(socket, profile);
        let _ = self.set_control_options(socket, profile);
    }

    /// Returns the congestion control to select for a section of `profile` when its path turns out not to be short;
    /// `None` if sections of this profile have their final control from the start.
    #[must_use]
    pub fn long_path_control(&self, profile: &Profile) -> Option<Arc<str>> {
        self.costly_default.as_ref().filter(|_| profile.has_auto_congestion()).cloned()
    }

    /// Returns the system's default congestion control, if it is replaced on short paths.
    #[must_use]
    pub fn costly_default(&self) -> Option<Arc<str>> {
        self.costly_default.clone()
    }

    /// Selects the congestion control for short paths, if the profile leaves the choice to the relay.
    fn set_auto_congestion(&self, socket: BorrowedFd<'_>, profile: &Profile) -> io::Result<()> {
        if self.costly_default.is_some() && profile.has_auto_congestion() {
            return congestion::set(socket, SHORT_PATH_CONTROL);
        }
        Ok(())
    }

    /// Restores the defaults of a listening socket for the settings that `profile` lacks, because an earlier profile
    /// may have set them.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn restore_defaults(&self, socket: BorrowedFd<'_>, profile: &Profile) -> io::Result<()> {
        sockopt::restore_defaults(socket, profile)?;
        let Some(Algorithm(name)) = profile.congestion() else {
            return if self.long_path_control(profile).is_some() { Ok(()) } else { restore_system_default(socket) };
        };
        if profile.compound_tcp().is_none()
            && let Some(control) = self.controls.get(name).and_then(|requested| requested.control.as_ref())
        {
            // Fails for controls without options, and without access to the storage of the sockets.
            let _ = control.set_options(socket, CompoundTcp::default());
        }
        Ok(())
    }

    /// Applies a profile with [`sockopt::apply_and_report`], and the settings of it that are not socket options.
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

    /// Sets the options of the congestion control; `None` if the profile sets none.
    fn set_control_options(&self, socket: BorrowedFd<'_>, profile: &Profile) -> Option<Result<(), String>> {
        let request = profile.compound_tcp()?;
        let requested = self.controls.get(&profile.congestion()?.0)?;
        Some(match &requested.control {
            Some(control) => control.set_options(socket, request),
            None => Err("requires the ctcp of ekiden, loaded by this relay or by `ekiden cc load ctcp`".to_owned()),
        })
    }

    /// Returns the congestion control of a connection, if it can start with a remembered window.
    #[must_use]
    pub fn resuming(&self, socket: BorrowedFd<'_>) -> Option<&dyn CongestionHandle> {
        let can_resume =
            |requested: &Arc<RequestedControl>| requested.control.as_ref().is_some_and(|it| it.can_resume());
        if !self.controls.values().any(can_resume) {
            // Most relays load no such control: the system call below is saved.
            return None;
        }
        let requested =
            self.controls.get(&congestion::of_socket(socket).ok()?).filter(|requested| can_resume(requested))?;
        requested.control.as_deref()
    }

    /// Returns the telemetry of a connection whose congestion control is `name`.
    #[must_use]
    pub fn telemetry(&self, name: &str, socket: BorrowedFd<'_>) -> Option<Telemetry> {
        self.controls.get(name)?.control.as_ref()?.telemetry(socket)
    }

    /// Returns whether the kernel removes a control whose loader has ended. Waits for some time, because the removal is
    /// delayed.
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

    /// Returns the result for each requested control.
    #[must_use]
    pub fn describe(&self) -> Vec<CongestionStatus> {
        self.controls.values().map(|requested| requested.congestion.clone()).collect()
    }
}

impl RequestedControl {
    /// Whether the requested control was available, so that sections use it.
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

/// Selects the system's default congestion control, unless the socket has it.
fn restore_system_default(socket: BorrowedFd<'_>) -> io::Result<()> {
    let default = congestion::system_default()?;
    if congestion::of_socket(socket)? == default { Ok(()) } else { congestion::set(socket, &default) }
}

const RESTRICTED: &str =
    "its selection requires CAP_NET_ADMIN, or its name in sysctl net.ipv4.tcp_allowed_congestion_control";

/// Returns the congestion control that a socket gets after a request for `name`.
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

    /// A provider that records the parameters of each request.
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

    /// A reload must not unload the control, because connections arrive during the reload.
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
