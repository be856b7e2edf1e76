use super::*;
use crate::experiment::examples_for_tests::{TEXT, small_experiment};

mod paths;

fn errors_of(text: &str) -> Vec<String> {
    Experiment::parse("x", text).unwrap_err()
}

#[test]
fn every_combination_has_the_settings_of_its_levels() {
    let experiment = small_experiment("").unwrap();
    // 2 delays, 2 protocols, 3 treatments, without haproxy for FTP.
    assert_eq!((experiment.cells.len(), experiment.skipped.len(), experiment.seed), (10, 2, 7));
    assert_eq!(experiment.selected_cells(false).count(), 5);
    for cell in &experiment.cells {
        let delay = cell.spec.lab.links["near"].forward.delay.map(|delay| delay.to_string());
        let wanted = if cell.key.levels["delay"] == "short" { "1ms" } else { "9ms" };
        assert_eq!(delay.as_deref(), Some(wanted), "{}", cell.key);
        assert_eq!(cell.spec.workload.protocol.name(), cell.key.levels["protocol"]);
        assert_eq!(cell.spec.treatment.chain, ["relay"]);
    }
    assert_eq!(experiment.skipped[0].0.to_string(), "haproxy, short, ftp");
}

#[test]
fn treatment_can_override_the_document() {
    let text = TEXT.replace("[treatment.dante]", "[treatment.dante]\nset = { \"link.far.delay\" = \"3ms\" }");
    let experiment = Experiment::parse("x", &text).unwrap();
    let far = |treatment: &str| {
        let cell = experiment.cells.iter().find(|cell| cell.key.treatment == treatment).unwrap();
        cell.spec.lab.links["far"].forward.delay.is_some()
    };
    assert!(far("dante") && !far("direct"));
}

#[test]
fn mistakes_are_reported_together_and_once_each() {
    let text = TEXT
        .replace("file = \"1MB\"", "file = \"1\"")
        .replace("title = \"A small one\"", "title = \"A small one\"\nflavour = 1")
        .replace("program = \"dante\"", "program = \"dante\"\nmod = \"socks\"")
        .replace("\"link.near.delay\" = \"9ms\"", "\"link.nowhere.delay\" = \"9ms\"");
    let mistakes = errors_of(&text);
    let has = |part: &str| mistakes.iter().filter(|mistake| mistake.contains(part)).count();
    assert_eq!(has("flavour: unknown key"), 1, "{mistakes:#?}");
    assert_eq!(has("workload.file: \"1\" is not a size like"), 1, "{mistakes:#?}");
    assert_eq!(has("treatment.dante.mod: is not a key; expected one of "), 1, "{mistakes:#?}");
    assert_eq!(has("there is no link.nowhere"), 1, "{mistakes:#?}");
}

#[test]
fn unknown_and_missing_references_are_rejected() {
    let wrong = [
        ("chain = [\"relay\"]", "chain = [\"r9\"]", "chain: there is no host \"r9\""),
        ("treatments = [\"direct\",", "treatments = [\"best\",", "there is no [treatment.best]"),
        ("treatments = [\"direct\",", "treatments = [\"best\",", "treatment.direct: not in experiment.treatments"),
        ("protocol = \"http\"", "protocol = \"http\"\nprogram = \"vsftpd\"", "vsftpd does not speak http"),
        ("quick = 2", "quick = 0", "experiment.blocks: expected at least 1"),
        ("title = \"A small one\"", "", "title: missing"),
        ("blocks =", "metric = \"speed\"\nblocks =", "there is no metric \"speed\""),
        ("program = \"dante\"", "program = \"command\"", "command: expected a program and its arguments"),
    ];
    for (from, to, wanted) in wrong {
        let mistakes = errors_of(&TEXT.replace(from, to));
        assert!(mistakes.iter().any(|mistake| mistake.contains(wanted)), "{wanted}: {mistakes:#?}");
    }
}

#[test]
fn quick_level_can_depend_on_levels_of_other_factors() {
    let quick = |where_: &str| TEXT.replace("{ name = \"http\" }", &format!("{{ name = \"http\", quick = {where_} }}"));
    let text = quick(r#"{ delay = ["short"] }"#)
        .replace(r#"{ "link.near.delay" = "9ms" } }"#, r#"{ "link.near.delay" = "9ms" }, quick = true }"#);
    let experiment = Experiment::parse("x", &text).unwrap();
    let cells: Vec<String> = experiment.selected_cells(false).map(|cell| cell.key.to_string()).collect();
    assert_eq!(cells, ["direct, short, http", "dante, short, http", "haproxy, short, http"]);
    let mistakes = errors_of(&quick(r#"{ delay = ["none"] }"#));
    assert_eq!(mistakes, ["level http: quick: there is no level \"none\" of a factor \"delay\""]);
}

#[test]
fn unsupported_relay_settings_are_rejected() {
    let wrong = [
        ("program = \"dante\"\ntunnel = true", "tunnel: requires an HTTP proxy"),
        ("program = \"squid\"\nsections = true", "sections: requires program = \"ekiden\""),
        (
            "program = \"dante\"\nreuse = true",
            "reuse: requires program = \"squid\" or \"haproxy\" without transparent; for ekiden, set profile or config",
        ),
        ("program = \"ekiden\"\nearly = true", "early, encrypt: require sections = true or relays"),
        ("program = \"ekiden\"\nencrypt = true", "early, encrypt: require sections = true or relays"),
    ];
    for (program, wanted) in wrong {
        let mistakes = errors_of(&TEXT.replace("program = \"dante\"", program));
        assert_eq!(mistakes, [wanted], "{program}");
    }
}

#[test]
fn unsupported_client_settings_are_rejected() {
    let stream = "protocol = \"stream\"\ntime = { quick = \"1s\", full = \"1s\" }";
    let wrong = [
        ("protocol = \"http\"", "protocol = \"http\"\nagent = \"wget\"", "wget supports only HTTP proxies"),
        ("protocol = \"http\"", stream, "a stream has time"),
        ("protocol = \"http\"\nfile = \"1MB\"", "protocol = \"http\"", "everything else has a file"),
        ("protocol = \"http\"\nfile = \"1MB\"", &stream.replace("\"1s\"", "\"1.5s\""), "time: expected whole seconds"),
        (
            "program = \"dante\"",
            "program = \"dante\"\ntransparent = true",
            "transparent: requires program = \"haproxy\" or \"ekiden\"",
        ),
        (
            "program = \"dante\"",
            "program = \"ekiden\"\nnear_profile = \"lan\"",
            "near_profile: requires transparent = true",
        ),
    ];
    for (from, to, wanted) in wrong {
        let mistakes = errors_of(&TEXT.replace(from, to));
        assert!(mistakes.iter().any(|mistake| mistake.contains(wanted)), "{wanted}: {mistakes:#?}");
    }
}

#[test]
fn idle_needs_two_or_more_file_transfers() {
    let with = |keys: &str| TEXT.replace("file = \"1MB\"", &format!("file = \"1MB\"\n{keys}"));
    let experiment = Experiment::parse("x", &with("transfers = 2\nidle = \"60s\"")).unwrap();
    assert_eq!(experiment.cells[0].spec.workload.idle.map(|idle| idle.0.as_secs()), Some(60));
    let wanted = "workload: idle: requires a file and at least 2 transfers";
    assert_eq!(errors_of(&with("idle = \"60s\"")), [wanted], "there is only one transfer");
    let arrivals = "arrivals = [{ file = \"1kB\", every = \"1s\" }]\ntime = { quick = \"1s\", full = \"1s\" }";
    let text = TEXT.replace("file = \"1MB\"", &format!("transfers = 1\nidle = \"1s\"\n{arrivals}"));
    assert!(errors_of(&text).contains(&wanted.to_owned()));
}

#[test]
fn stream_skips_proxies_and_is_longer_in_the_full_size() {
    let stream = "protocol = \"stream\"\ntime = { quick = \"1s\", full = \"60s\" }";
    let text = TEXT.replace("protocol = \"http\"\nfile = \"1MB\"", stream);
    let (text, _) = text.split_once("[[factor]]\nname = \"protocol\"").unwrap();
    let experiment = Experiment::parse("x", text).unwrap();
    let skipped: Vec<_> = experiment.skipped.iter().map(|(place, why)| (place.to_string(), why.as_str())).collect();
    assert_eq!(skipped[0], ("dante, short".to_owned(), "iperf3 does not support proxies"));
    assert!(experiment.cells.iter().any(|cell| cell.key.treatment == "haproxy"));
    let takes = [false, true].map(|full| experiment.estimated_run_time(full).as_secs());
    assert_eq!(takes, [10, 69]);
}

/// The small experiment without FTP, with blocks instead of a file.
fn with_blocks(keys: &str) -> String {
    let text = TEXT.replace("protocol = \"http\"\nfile = \"1MB\"", &format!("protocol = \"blocks\"\n{keys}"));
    text.split_once("[[factor]]\nname = \"protocol\"").unwrap().0.to_owned()
}

#[test]
fn blocks_skip_proxies_and_use_the_sink_server() {
    let experiment = Experiment::parse("x", &with_blocks("amount = \"1MiB\"\nblock = \"640B\"")).unwrap();
    let skipped: Vec<_> = experiment.skipped.iter().map(|(place, why)| (place.to_string(), why.as_str())).collect();
    assert_eq!(skipped[0], ("dante, short".to_owned(), "the writer does not support proxies"));
    let workload = &experiment.cells[0].spec.workload;
    assert_eq!((workload.server_program().name(), workload.stamped_block_size()), ("sink", None));
    let paused = with_blocks("amount = \"1MiB\"\nblock = \"64B\"\npause = \"20ms\"");
    let experiment = Experiment::parse("x", &paused).unwrap();
    assert_eq!(
        experiment.cells[0].spec.workload.stamped_block_size(),
        Some(64),
        "the sink needs the positions of the timestamps"
    );
}

#[test]
fn invalid_block_workloads_are_rejected() {
    let wrong = [
        ("amount = \"1MiB\"", "blocks have an amount and the size of a block"),
        ("block = \"640B\"", "blocks have an amount and the size of a block"),
        ("amount = \"1MiB\"\nblock = \"640B\"\nfile = \"1MB\"", "blocks have an amount and the size of a block"),
        ("amount = \"1MiB\"\nblock = \"0B\"", "block: expected 1B to 16777216B"),
        ("amount = \"1MiB\"\nblock = \"7B\"\npause = \"1ms\"", "with a pause at least 8B, for the timestamp"),
        ("amount = \"0B\"\nblock = \"1B\"", "nothing to transfer"),
        (
            "amount = \"1B\"\nblock = \"1B\"\ncap = \"0s\"",
            "cap: expected a time above 0, with protocol = \"blocks\" or \"http\" and agent = \"curl\"",
        ),
        ("amount = \"1MiB\"\nblock = \"1B\"\nprogram = \"nginx\"", "nginx does not speak blocks"),
    ];
    for (keys, wanted) in wrong {
        let mistakes = errors_of(&with_blocks(keys));
        assert!(mistakes.iter().any(|mistake| mistake.contains(wanted)), "{wanted}: {mistakes:#?}");
    }
    let file = TEXT.replace("file = \"1MB\"", "file = \"1MB\"\npause = \"1ms\"");
    assert_eq!(errors_of(&file), ["workload: pause: requires protocol = \"blocks\""]);
}

#[test]
fn packet_log_needs_an_emulated_link() {
    let logged = |links: &str| TEXT.replace("file = \"1MB\"", &format!("file = \"1MB\"\npacket_log = {links}"));
    let experiment = Experiment::parse("x", &logged("[\"near\"]")).unwrap();
    assert_eq!(experiment.cells[0].spec.workload.packet_log, ["near"]);
    let perfect = "workload.packet_log: link \"far\" has no emulator: set a delay or another condition";
    assert_eq!(errors_of(&logged("[\"near\", \"far\"]")), [perfect]);
    assert_eq!(errors_of(&logged("[\"wan\"]")), ["workload.packet_log: there is no link \"wan\""]);
    let netem = errors_of(&logged("[\"near\"]").replace("lab = 1", "lab = 1\nbackend = \"netem\""));
    assert!(netem.contains(&"workload.packet_log: not supported with backend = \"netem\"".to_owned()), "{netem:?}");
}

#[test]
fn encryption_with_a_single_relay_is_skipped() {
    let encrypted = "program = \"ekiden\"\nsections = true\nencrypt = true";
    let experiment = Experiment::parse("x", &TEXT.replace("program = \"dante\"", encrypted)).unwrap();
    let reason =
        experiment.skipped.iter().find(|(place, _)| place.treatment == "dante").map(|(_, reason)| reason.as_str());
    assert_eq!(reason, Some("no section between relays: there is nothing to encrypt"));
}

/// The small experiment without FTP, with flows instead of a file.
fn with_flows(keys: &str) -> String {
    with_blocks(&format!("time = {{ quick = \"5s\", full = \"5s\" }}\n{keys}")).replace("\"blocks\"", "\"flows\"")
}

#[test]
fn flows_need_a_valid_connection_count_and_time() {
    let keys = "connections = 128\nshort = { bytes = \"16KiB\", every = \"200ms\" }\nwarm_up = \"1s\"";
    let experiment = Experiment::parse("x", &with_flows(keys)).unwrap();
    assert_eq!(experiment.cells[0].spec.workload.connections, Some(128));
    let wrong = [
        ("", "connections: mandatory with protocol = \"flows\""),
        ("connections = 129", "connections: expected 1 to 128"),
        ("connections = 0", "connections: expected 1 to 128"),
        ("connections = 1\nwarm_up = \"5s\"", "warm_up: expected whole seconds, less than time"),
        ("connections = 1\nshort = { bytes = \"0B\", every = \"1s\" }", "short: expected bytes from 1B to 16MiB"),
        ("connections = 1\nfile = \"1MB\"", "everything else has a file"),
    ];
    for (keys, wanted) in wrong {
        let mistakes = errors_of(&with_flows(keys));
        assert!(mistakes.iter().any(|mistake| mistake.contains(wanted)), "{wanted}: {mistakes:#?}");
    }
    let file = errors_of(&TEXT.replace("file = \"1MB\"", "file = \"1MB\"\nconnections = 2"));
    assert!(file[0].contains("connections and short: not supported with other protocols"), "{file:?}");
}

#[test]
fn config_and_wrap_are_for_ekiden_only() {
    let dante = errors_of(&TEXT.replace("program = \"dante\"", "program = \"dante\"\nwrap = [\"nice\"]"));
    assert_eq!(dante, ["config, wrap: require program = \"ekiden\" without relays"]);
    let ekiden =
        |config: &str| TEXT.replace("program = \"dante\"", &format!("program = \"ekiden\"\nconfig = {config}"));
    assert_eq!(
        errors_of(&ekiden("{ threads = 1 }")),
        ["config: expected tables, like { log = { format = \"json\" } }"]
    );
    let right = ekiden("{ log = { format = \"json\" }, interface = [{ name = \"near\", rate = \"1Mbit/s\" }] }");
    assert!(Experiment::parse("x", &right).is_ok());
}

#[test]
fn client_and_server_rates_need_curl_and_nginx() {
    let set = |keys: &str| TEXT.replace("file = \"1MB\"", &format!("file = \"1MB\"\n{keys}"));
    let mistakes = errors_of(&set("client_rate = \"1Mbit/s\"\nserver_rate = \"1Mbit/s\""));
    // Only the cells with FTP cause these errors: HTTP by curl and nginx supports rates.
    assert_eq!(
        mistakes,
        [
            "workload: client_rate: requires protocol = \"http\" and agent = \"curl\"",
            "workload: server_rate: requires program = \"nginx\""
        ]
    );
}

#[test]
fn tunnel_needs_two_hosts_and_forwarder_needs_sections() {
    for program in ["openvpn", "vtun", "ssh"] {
        let text = TEXT.replace("program = \"dante\"", &format!("program = \"{program}\""));
        assert_eq!(errors_of(&text), ["chain: expected two hosts, one for each end of the tunnel"], "{program}");
        let both = text.replace("chain = [\"relay\"]", "chain = [\"relay\", \"server\"]");
        let experiment = Experiment::parse("x", &both).unwrap();
        let cells = experiment.cells.iter().filter(|cell| cell.key.treatment == "dante");
        let ftp = cells.filter(|cell| cell.spec.workload.protocol.name() == "ftp").count();
        assert_eq!(ftp > 0, program != "ssh", "a forwarder of one port carries no FTP: {program}");
    }
    let forwarder = errors_of(&TEXT.replace("program = \"dante\"", "program = \"ekiden\"\nmode = \"tcp\""));
    assert_eq!(
        forwarder,
        ["mode: tcp requires sections = true or relays; for a single relay, set program = \"command\""]
    );
    let profile = errors_of(&TEXT.replace("program = \"dante\"", "program = \"ekiden\"\nprofile = 3"));
    assert!(profile[0].contains("the name of a profile, or a table of its settings"), "{profile:?}");
}
