//! Checks of the capacity for sessions: descriptors, pipes, queues of new connections, ports, connection tracking.

use super::Finding;
use super::system::SystemState;
use super::workload::Workload;

/// Largest pipe that the pump requests, in bytes.
const PIPE_SIZE: u64 = 1 << 20;

/// Seconds for which a closed connection keeps its port (`TCP_TIMEWAIT_LEN` of Linux).
const TIME_WAIT: u64 = 60;

/// Runs all checks of the capacity for sessions.
pub fn checks(reading: &SystemState, purpose: &Workload) -> Vec<Finding> {
    vec![
        open_files(reading, purpose),
        pipe_size(reading),
        pipe_quota(reading),
        accept_queue(reading),
        syn_queue(reading),
        local_ports(reading, purpose),
        time_wait(reading, purpose),
        conntrack(reading, purpose),
    ]
}

fn open_files(reading: &SystemState, purpose: &Workload) -> Finding {
    let subject = "open files, hard limit";
    let Some(hard) = reading.open_files else {
        return Finding::new("open_files", subject, "no limit");
    };
    let capacity = purpose.session_capacity(hard);
    let finding = Finding::new("open_files", subject, format!("{hard}, for about {capacity} sessions"));
    let effect = format!(
        "new clients wait above {capacity} sessions, and the workload has {}; in a systemd unit: LimitNOFILE=1048576",
        purpose.sessions
    );
    finding.with_hint_if(capacity < purpose.sessions, effect, "ulimit -n 1048576")
}

fn pipe_size(reading: &SystemState) -> Finding {
    const SETTING: &str = "fs.pipe-max-size";
    let subject = "pipe size ceiling";
    let Some(limit) = reading.number(SETTING, 0) else {
        return Finding::unknown("pipe_size", subject, SETTING);
    };
    let effect = format!("each splice moves {limit} bytes at most instead of {PIPE_SIZE}: more CPU for each GiB");
    let fix = format!("sysctl -w {SETTING}={PIPE_SIZE}");
    Finding::new("pipe_size", subject, format!("{limit} bytes")).with_hint_if(limit < PIPE_SIZE, effect, fix)
}

/// Checks the quota of pipe pages. Above the quota a new pipe has two pages (pipe(7)); 0 means no quota.
fn pipe_quota(reading: &SystemState) -> Finding {
    const SETTING: &str = "fs.pipe-user-pages-soft";
    let subject = "pipe quota of a user";
    let Some(pages) = reading.number(SETTING, 0) else {
        return Finding::unknown("pipe_quota", subject, SETTING);
    };
    let pipes = pages * reading.page_size.max(1) / PIPE_SIZE;
    let is_limited = pages != 0 && !reading.has_no_pipe_quota();
    let found = match is_limited {
        true => format!("{pages} pages, {pipes} pipes of 1 MiB"),
        false => format!("{pages} pages, not enforced for this process"),
    };
    let effect = format!("beyond {pipes} transfers at once bytes are copied instead of spliced");
    let fix = format!("sysctl -w {SETTING}=262144");
    Finding::new("pipe_quota", subject, found).with_hint_if(is_limited && pipes < 256, effect, fix)
}

fn accept_queue(reading: &SystemState) -> Finding {
    const SETTING: &str = "net.core.somaxconn";
    let subject = "accept queue";
    let Some(limit) = reading.number(SETTING, 0) else {
        return Finding::unknown("accept_queue", subject, SETTING);
    };
    let effect =
        format!("in a burst of more than {limit} new connections, the others wait 1 s or more for a second SYN");
    let fix = format!("sysctl -w {SETTING}=4096");
    Finding::new("accept_queue", subject, format!("{limit} connections")).with_hint_if(limit < 4096, effect, fix)
}

/// Checks the number of handshakes in progress. With SYN cookies (tcp(7)) more are answered, but without window
/// scaling.
fn syn_queue(reading: &SystemState) -> Finding {
    const SETTING: &str = "net.ipv4.tcp_max_syn_backlog";
    let subject = "handshakes under way";
    let Some(size) = reading.number(SETTING, 0) else {
        return Finding::unknown("syn_queue", subject, SETTING);
    };
    let cookies = reading.number("net.ipv4.tcp_syncookies", 0).unwrap_or(0) != 0;
    let found = format!("{size}, {}", if cookies { "then SYN cookies" } else { "no SYN cookies" });
    let (effect, required) = match cookies {
        true => (format!("above {size} handshakes at once, connections may lack window scaling: 64 KiB windows"), 256),
        false => (format!("above {size} handshakes at once, the kernel does not answer new clients"), 4096),
    };
    let fix = format!("sysctl -w {SETTING}=4096");
    Finding::new("syn_queue", subject, found).with_hint_if(size < required, effect, fix)
}

/// Returns the first and the last port for outgoing connections.
fn port_range(reading: &SystemState) -> Option<(u64, u64)> {
    let setting = "net.ipv4.ip_local_port_range";
    Some((reading.number(setting, 0)?, reading.number(setting, 1)?))
}

fn local_ports(reading: &SystemState, purpose: &Workload) -> Finding {
    const SETTING: &str = "net.ipv4.ip_local_port_range";
    let subject = "local ports";
    let Some((first, last)) = port_range(reading) else {
        return Finding::unknown("local_ports", subject, SETTING);
    };
    let ports = (last + 1).saturating_sub(first);
    let finding = Finding::new("local_ports", subject, format!("{first} to {last}, {ports} for each target"));
    let effect = format!(
        "at most {ports} sessions at once to one target (a server, a proxy, the next relay), and the workload has {}",
        purpose.sessions
    );
    finding.with_hint_if(ports < purpose.sessions, effect, format!("sysctl -w {SETTING}=\"1024 65535\""))
}

fn time_wait(reading: &SystemState, purpose: &Workload) -> Finding {
    const SETTING: &str = "net.ipv4.tcp_tw_reuse";
    let subject = "ports of ended sessions";
    let (Some(mode), Some((first, last))) = (reading.number(SETTING, 0), port_range(reading)) else {
        return Finding::unknown("time_wait", subject, SETTING);
    };
    let ports = (last + 1).saturating_sub(first);
    let waiting = reading.time_wait.map_or_else(|| "an unknown number".to_owned(), |number| number.to_string());
    let reused = if mode == 1 { "reused after 1 s" } else { "kept for 60 s" };
    let finding = Finding::new("time_wait", subject, format!("{waiting} in TIME_WAIT, {reused}"));
    let effect = format!("at most {} new sessions per second to one target on average", ports / TIME_WAIT);
    let scarce = ports < 2 * purpose.sessions || reading.time_wait.is_some_and(|number| 2 * number > ports);
    finding.with_hint_if(mode != 1 && scarce, effect, format!("sysctl -w {SETTING}=1"))
}

/// Checks the table of connection tracking. A full table drops the first packets of all connections, and only the
/// kernel's log reports it.
fn conntrack(reading: &SystemState, purpose: &Workload) -> Finding {
    const SETTING: &str = "net.netfilter.nf_conntrack_max";
    let subject = "connection tracking";
    let (Some(limit), Some(count)) =
        (reading.number(SETTING, 0), reading.number("net.netfilter.nf_conntrack_count", 0))
    else {
        return Finding::new("conntrack", subject, "not in use");
    };
    let hours = reading.number("net.netfilter.nf_conntrack_tcp_timeout_established", 0).unwrap_or(0) / 3600;
    let found = format!("{count} of {limit} entries; an idle connection keeps its entry for {hours} hours");
    let finding = Finding::new("conntrack", subject, found);
    // A limit of 0 means none.
    if count == 0 || limit == 0 {
        return finding;
    }
    let room = limit.saturating_sub(count) / 2;
    // Larger than now, also if the sessions wanted fit.
    let entries = (count + 2 * purpose.sessions).max(limit + 1).next_power_of_two();
    let fix = format!("sysctl -w {SETTING}={entries}");
    if count * 10 >= limit * 9 {
        return finding
            .with_error(format!("nearly full: after {room} more sessions, new connections are dropped"), fix);
    }
    let effect = format!(
        "a session needs two entries: {room} of {} sessions fit, then the kernel drops new connections. Sessions of \
         transparent listeners need none",
        purpose.sessions
    );
    finding.with_hint_if(room < purpose.sessions, effect, fix)
}
