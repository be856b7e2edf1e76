//! Metrics of the relay's own process.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::fixture::*;
use crate::harness::*;
use crate::relays::*;

#[test]
fn process_metrics_match_the_kernel() {
    let (before, relay) = (now(), Relay::listen(&["auto://127.0.0.1:0"]));
    // The first scrapes allocate memory. A scrape has a connection, and before Linux 6.2 an open directory.
    let scrape = eventually("the descriptors and the memory that the kernel reports", || {
        let scrape = Scrape::of(&relay);
        let opened = scrape.sum("process_open_fds", &[]) - relay.descriptors() as f64;
        let added = scrape.sum("process_resident_memory_bytes", &[]) - relay.resident_kib() as f64 * 1024.0;
        ((1.0..=2.0).contains(&opened) && equals(added, 0)).then_some(scrape)
    });
    let value = |name: &str| scrape.sum(name, &[]);
    assert!((before - 1.0..=now()).contains(&value("process_start_time_seconds")), "{}", scrape.0);
    assert!(value("process_max_fds") >= value("process_open_fds"));
    assert!(value("process_virtual_memory_bytes") > value("process_resident_memory_bytes"), "{}", scrape.0);
    assert!(value("process_threads") >= 4.0, "{}", scrape.0);
    assert!(value("process_cpu_seconds_total") > 0.0);
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(equals(scrape.sum("ekiden_build_info", &[&version]), 1), "{}", scrape.0);
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// The busy time of all workers is at most the CPU time of the process, and event loop lag is sampled.
#[test]
fn workers_report_busy_time_and_event_loop_lag() {
    let site = Site::new();
    let home = site.home("", AUTO);
    let (client, server) = pair(&home);
    let worker = |scrape: &Scrape| scrape.sum("ekiden_worker_busy_seconds_total", &["worker=\"worker-0\""]);
    let before = worker(&Scrape::of(&home));
    let sending = flood(server);
    let draining = drain(client.try_clone().unwrap());
    wait_metric(&home, "ekiden_worker_busy_seconds_total", &["worker=\"worker-0\""], |busy| busy > before + 0.05);
    let scrape = Scrape::of(&home);
    let all = scrape.sum("ekiden_worker_busy_seconds_total", &[]);
    assert!(all <= scrape.sum("process_cpu_seconds_total", &[]), "{}", scrape.0);
    assert!(scrape.0.contains("{worker=\"gate\"}"), "{}", scrape.0);
    wait_metric(&home, "ekiden_event_loop_lag_seconds_count", &[], |count| count >= 4.0);
    client.shutdown(std::net::Shutdown::Both).unwrap();
    join(draining);
    drop(client);
    join(sending);
}

/// One session keeps one of two workers busy, and a program of the test competes for the CPU of this worker.
#[test]
fn busy_worker_hands_new_connections_to_an_idle_worker() {
    let folder = Folder::new();
    let text = "version = 1\nthreads = 2\n[[listener]]\nkind = \"auto\"\nbind = \"127.0.0.1:0\"\n";
    let relay = Relay::run(&["-c", folder.write("relay.toml", text).to_str().unwrap()], 1);
    let (client, server) = pair(&relay);
    let (sending, draining) = (flood(server), drain(client.try_clone().unwrap()));
    let value = |name, worker: &str| Scrape::of(&relay).sum(name, &[&format!("worker=\"{worker}\"")]);
    let workers = ["worker-0", "worker-1"];
    let busy = eventually("a busy worker", || {
        workers.iter().find(|worker| value("ekiden_worker_busy_seconds_total", worker) > 0.3)
    });
    let _program = spin_beside(&relay, busy);

    let greeter = serve(|mut client| client.write_all(b"!").unwrap());
    eventually("a connection that another worker serves", || {
        let mut tunnel = socks5(relay.address(), greeter).unwrap();
        assert_eq!(read_all(&mut tunnel), b"!");
        (value("ekiden_worker_handed_over_total", busy) > 0.0).then_some(())
    });
    let other = workers.iter().find(|worker| *worker != busy).unwrap();
    assert!(equals(value("ekiden_worker_handed_over_total", other), 0), "an idle worker hands over no connections");
    client.shutdown(std::net::Shutdown::Both).unwrap();
    join(draining);
    drop(client);
    join(sending);
}

/// Binds a thread of `relay` to one CPU, and starts a program that keeps this CPU busy.
fn spin_beside(relay: &Relay, thread: &str) -> KillOnDrop {
    let tasks = fs::read_dir(format!("/proc/{}/task", relay.id())).unwrap().map(|task| task.unwrap().path());
    let is_named = |task: &PathBuf| fs::read_to_string(task.join("comm")).unwrap().trim_end() == thread;
    let task = tasks.into_iter().find(is_named).unwrap();
    let allowed = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = allowed.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let processor = allowed.trim().split(['-', ',']).next().unwrap();
    let bind =
        |arguments: &[&str]| Command::new("taskset").args(["-c", "-p", processor]).args(arguments).output().unwrap();
    assert!(bind(&[task.file_name().unwrap().to_str().unwrap()]).status.success());
    KillOnDrop(Command::new("taskset").args(["-c", processor, "sh", "-c", "while :; do :; done"]).spawn().unwrap())
}

#[test]
fn reloads_are_counted_by_result() {
    let site = Site::new();
    let mut home = site.home("", AUTO);
    let count = |home: &Relay, result: &str| Scrape::of(home).sum("ekiden_reloads_total", &[result]);
    assert!(equals(count(&home, "rejected"), 0) && equals(Scrape::of(&home).sum("ekiden_reload_taken", &[]), 1));
    site.write_home("nonsense = 1\n", AUTO);
    home.signal("HUP");
    home.next(|event| event["event"] == "reload_rejected");
    assert!(equals(count(&home, "rejected"), 1) && equals(Scrape::of(&home).sum("ekiden_reload_taken", &[]), 0));
    site.write_home("", AUTO);
    home.signal("HUP");
    home.next(|event| event["event"] == "reloaded");
    assert!(equals(count(&home, "taken"), 1));
    wait_metric(&home, "ekiden_reload_seconds_count", &[], |count| equals(count, 2));
    assert!(equals(Scrape::of(&home).sum("ekiden_reload_taken", &[]), 1));
}
