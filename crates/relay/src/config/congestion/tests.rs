use std::cell::RefCell;
use std::sync::Mutex;

use super::*;
use crate::config::read;

/// Nobody has this one; bbr or cubic come nearest to it.
const ABSENT: &str = "hybla";

fn config(congestion: &str) -> Config {
    let url = "tcp://127.0.0.1:0/127.0.0.1:9?profile=test";
    let text = format!("version = 1\n[profile.test]\n{congestion}\n");
    let file = std::env::temp_dir().join(format!("ekiden-congestion-{}-{:p}.toml", std::process::id(), &text));
    std::fs::write(&file, text).unwrap();
    let flags = read::Flags { listen: vec![url.to_owned()], ..read::Flags::default() };
    let config = read::load(Some(&file), &flags);
    std::fs::remove_file(file).unwrap();
    config.unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn obtain(
    config: &Config,
    before: &CongestionControls,
    provide: ControlProvider<'_>,
) -> (CongestionControls, Vec<CongestionStatus>) {
    let told = RefCell::new(Vec::new());
    let controls = CongestionControls::obtain(config, before, provide, |event| match event {
        Event::Congestion(congestion) => told.borrow_mut().push(congestion.clone()),
        other => panic!("{other:?}"),
    });
    (controls, told.into_inner())
}

fn from_kernel(_: &str) -> Result<ProvidedControl, String> {
    Ok(ProvidedControl { from: CongestionStatus::KERNEL.to_owned(), control: None })
}

/// Keeps what it was asked.
#[derive(Debug, Default, Clone)]
struct Willing(Arc<Mutex<Vec<CompoundTcp>>>);

impl CongestionHandle for Willing {
    fn telemetry(&self, _: BorrowedFd<'_>) -> Option<Telemetry> {
        None
    }

    fn set_options(&self, _: BorrowedFd<'_>, request: CompoundTcp) -> Result<(), String> {
        self.0.lock().unwrap().push(request);
        Ok(())
    }
}

#[test]
fn what_comes_with_the_kernel_is_not_worth_a_line() {
    let (controls, told) = obtain(&config(r#"congestion = "reno""#), &CongestionControls::default(), &from_kernel);
    assert_eq!(told, []);
    assert_eq!(controls.describe()[0].in_use, "reno");
}

#[test]
fn what_nobody_brings_is_replaced_and_told_with_the_reason() {
    let refuse = |_: &str| Err("no clang in sight".to_owned());
    let (controls, told) =
        obtain(&config(&format!("congestion = {ABSENT:?}")), &CongestionControls::default(), &refuse);
    let [told] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((told.name.as_str(), told.why.as_deref()), (ABSENT, Some("no clang in sight")));
    assert!(["bbr", "cubic"].contains(&told.in_use.as_str()), "{told:?}");
    assert_eq!(controls.describe().as_slice(), std::slice::from_ref(told));
}

/// It is held, and so must not be let go and loaded again while connections come in.
#[test]
fn what_is_there_stays_over_a_reload() {
    let config = config(r#"congestion = "reno""#);
    let willing = |_: &str| Ok(ProvidedControl { from: "us".to_owned(), control: Some(Box::new(Willing::default())) });
    let (before, told) = obtain(&config, &CongestionControls::default(), &willing);
    assert_eq!(told.len(), 1);
    let (after, told) = obtain(&config, &before, &|_| panic!("asked again"));
    assert_eq!(after.describe(), before.describe());
    assert_eq!(told.len(), 1, "after a reload it is told again what is in force");
}

#[test]
fn wishes_reach_the_control_and_are_reported() {
    let mut profile = Profile::named("test");
    for (key, value) in [("congestion", "ctcp"), ("ctcp_gamma", "12"), ("ctcp_auto_gamma", "true")] {
        profile.set(Setting::read(key, value).unwrap());
    }
    let willing = Willing::default();
    let congestion = CongestionStatus { name: "ctcp".into(), in_use: "ctcp".into(), from: None, why: None };
    let with = |control| {
        let asked = RequestedControl { congestion: congestion.clone(), control };
        CongestionControls { by_name: BTreeMap::from([("ctcp".to_owned(), Arc::new(asked))]) }
    };
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let outcomes = |controls: CongestionControls| -> Vec<Outcome> {
        let report = controls.apply_and_report(socket.as_fd(), &profile, SocketRole::Dialer);
        report.into_iter().skip(1).map(|applied| applied.outcome).collect()
    };
    assert_eq!(outcomes(with(Some(Box::new(willing.clone())))), [Outcome::Applied, Outcome::Applied]);
    assert_eq!(*willing.0.lock().unwrap(), [CompoundTcp { gamma: 12, auto_gamma: true }]);
    for outcome in outcomes(with(None)) {
        assert!(matches!(&outcome, Outcome::Unsupported(why) if why.contains("ekiden cc load ctcp")), "{outcome}");
    }
}
