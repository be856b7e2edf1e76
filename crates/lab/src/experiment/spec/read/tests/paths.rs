//! Keys for path selection, for transfers before and during the measurement, and for drawn levels.

use super::*;
use crate::experiment::run::schedule;
use crate::program::mesh::{AutoKeyword, PathSetting};

/// The small experiment without FTP, whose second treatment is ekiden on the client with these keys.
fn with_path_choice(keys: &str) -> String {
    let (head, _) = TEXT.split_once("[[factor]]\nname = \"protocol\"").unwrap();
    head.replace("program = \"dante\"", &format!("program = \"ekiden\"\nchain = [\"client\"]\n{keys}"))
}

fn with_workload(keys: &str) -> String {
    let text = with_path_choice("relays = [\"relay\", \"server\"]\npath = \"auto\"");
    text.replace("file = \"1MB\"", keys)
}

#[test]
fn path_selection_has_relays_and_a_path() {
    let path = |keys: &str| {
        let experiment =
            Experiment::parse("x", &with_path_choice(keys)).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
        let cell = experiment.cells.iter().find(|cell| cell.key.treatment == "dante").unwrap();
        assert_eq!(cell.spec.treatment.relays, ["relay", "server"]);
        cell.spec.treatment.path.clone().unwrap()
    };
    let relays = "relays = [\"relay\", \"server\"]\nencrypt = true\n";
    assert_eq!(path(&format!("{relays}path = \"auto\"")), PathSetting::Auto(AutoKeyword::Auto));
    let name = |keys: &str| path(&format!("{relays}{keys}")).name();
    assert_eq!(name("path = [\"direct\"]").as_deref(), Some("direct"));
    assert_eq!(name("path = [\"server\", \"relay\"]").as_deref(), Some("server-relay"));
    assert_eq!(name("mode = \"tcp\"\npath = [\"relay\"]").as_deref(), Some("relay"));
}

#[test]
fn invalid_path_selection_is_rejected() {
    let relays = "relays = [\"relay\"]";
    let wrong = [
        (relays.to_owned(), "relays, path: set both or neither"),
        ("path = \"auto\"".to_owned(), "relays, path: set both or neither"),
        ("relays = [\"r9\"]\npath = \"auto\"".to_owned(), "relays: there is no host \"r9\""),
        (
            "relays = [\"client\"]\npath = \"auto\"".to_owned(),
            "chain: with relays, expected one host, that of the chooser, which is not in relays",
        ),
        ("relays = [\"relay\", \"relay\"]\npath = \"auto\"".to_owned(), "relays: expected each host once"),
        (format!("{relays}\npath = \"best\""), "\"auto\", [\"direct\"], or names of relays in order"),
        (format!("{relays}\npath = [\"server\"]"), "path: expected \"auto\", [\"direct\"], or some of the relays"),
        (format!("{relays}\npath = \"auto\"\nsections = true"), "without sections and transparent"),
    ];
    for (keys, wanted) in wrong {
        let mistakes = errors_of(&with_path_choice(&keys));
        assert!(mistakes.iter().any(|mistake| mistake.contains(wanted)), "{wanted}: {mistakes:#?}");
    }
}

#[test]
fn first_change_excludes_events_before_the_transfers() {
    let text = with_workload(
        "prime = { files = [\"10kB\"], time = \"3s\" }\nbegins = \"20s\"\ntime = { quick = \"5s\", full = \"9s\" }\n\
         arrivals = [{ file = \"20kB\", every = \"1s\" }]\nkill = [{ relay = \"relay\", at = \"24s\" }]",
    );
    let text = text.replace("treatments = [\"direct\", \"dante\", \"haproxy\"]", "treatments = [\"dante\"]");
    let text = text.replace("[treatment.direct]\nprogram = \"direct\"\n", "");
    let text = text.replace("[treatment.haproxy]\nprogram = \"haproxy\"\n", "");
    let more = "\n[[background]]\nfrom = \"server\"\nto = \"client\"\nflows = 1\nat = \"23s\"\n[[event]]\nat = \"22s\"\n\
                link = \"near\"\nset = { delay = \"9ms\" }\n[[event]]\nat = \"2s\"\nlink = \"near\"\n\
                set = { delay = \"8ms\" }\n";
    let of = |text: &str| {
        Experiment::parse("x", text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}")).cells.remove(0).spec
    };
    let spec = of(&format!("{text}{more}"));
    assert_eq!(spec.workload.file_sizes().map(|file| file.0).collect::<Vec<_>>(), [10_000, 20_000]);
    assert_eq!(schedule::first_change(&spec), Some(Duration::from_secs(22)), "not an event before the transfers");
    assert_eq!(schedule::first_change(&of(&text)), Some(Duration::from_secs(24)));
    assert_eq!(schedule::first_change(&of(&text.replace("kill = [{ relay = \"relay\", at = \"24s\" }]", ""))), None);
}

#[test]
fn invalid_prime_arrivals_and_kill_are_rejected() {
    let arrivals = "arrivals = [{ file = \"1kB\", every = \"1s\" }]\n";
    let time = "time = { quick = \"1s\", full = \"1s\" }\n";
    let wrong = [
        (arrivals.to_owned(), "arrivals a time and files of their own"),
        (format!("{arrivals}{time}file = \"1kB\""), "arrivals a time and files of their own"),
        (format!("{arrivals}{time}transfers = 2"), "expected arrivals or transfers, not both"),
        (
            format!("{time}arrivals = [{{ file = \"1kB\", every = \"0s\" }}]"),
            "arrivals: every: expected a time above 0",
        ),
        (format!("{time}arrivals = [{{ file = \"0B\", every = \"1s\" }}]"), "nothing to transfer"),
        ("file = \"1kB\"\nprime = { sessions = 0, time = \"1s\" }".to_owned(), "prime: expected sessions and time"),
        ("file = \"1kB\"\nworse = \"relay\"".to_owned(), "workload.worse: requires arrivals"),
        (
            "file = \"1kB\"\nkill = [{ relay = \"relay\", at = \"9s\" }]".to_owned(),
            "at: expected a time after workload.begins",
        ),
        ("file = \"1kB\"\nbegins = \"1s\"\nkill = [{ relay = \"r9\", at = \"9s\" }]".to_owned(), "runs on host \"r9\""),
        ("file = \"1kB\"\nagent = \"wget\"".to_owned(), "relays: requires agent = \"curl\""),
        (
            "file = \"1kB\"\nagent = \"wget\"\ncap = \"1s\"".to_owned(),
            "cap: expected a time above 0, with protocol = \"blocks\" or \"http\" and agent = \"curl\"",
        ),
    ];
    for (keys, wanted) in wrong {
        let mistakes = errors_of(&with_workload(&keys));
        assert!(mistakes.iter().any(|mistake| mistake.contains(wanted)), "{wanted}: {mistakes:#?}");
    }
}

#[test]
fn levels_of_a_factor_can_be_drawn() {
    let drawn = "[[factor]]\nname = \"lab\"\n[factor.drawn]\nlevels = 4\nquick = 1\nseed = 3\n\
                 set = { \"link.near.delay\" = { from = \"1ms\", to = \"9ms\" } }\n";
    let text = with_path_choice("relays = [\"server\"]\npath = \"auto\"") + drawn;
    let experiment = Experiment::parse("x", &text).unwrap();
    let delays: std::collections::BTreeSet<String> = experiment
        .cells
        .iter()
        .filter_map(|cell| cell.spec.lab.links["near"].forward.delay.map(|delay| delay.to_string()))
        .collect();
    assert_eq!((experiment.factors[1].levels.len(), delays.len()), (4, 4));
    assert_eq!(experiment.selected_cells(false).count() * 8, experiment.cells.len());
    let both = text.replace("name = \"lab\"", "name = \"lab\"\nlevels = [{ name = \"x\" }]");
    assert_eq!(errors_of(&both), ["factor lab: expected either levels or drawn"]);
    assert!(errors_of(&text.replace("\"1ms\"", "\"1\""))[0].starts_with("factor lab: drawn: \"link.near.delay\": "));
}
