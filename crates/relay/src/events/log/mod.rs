//! Events as lines on standard output: `key=value` text, or one JSON object in each line.
//!
//! Lines are collected in memory and written by a separate thread, so that a slow terminal or a full pipe never delays
//! a session. When the thread cannot keep up, lines are dropped and counted, so that the memory is bounded. `select`
//! determines which events have a line and which fields are redacted. `flood` limits the lines that unauthenticated
//! peers can cause.

mod flood;
mod select;

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ekiden_proto::event::{ChoiceRecord, CongestionStatus, Event, RequestCompleted, SectionInfo, SessionClosed};
use ekiden_proto::resume::SectionStart;
use flood::LogRateLimiter;

use crate::config::{LogConfig, LogFormat};

/// Maximum number of bytes that wait to be written.
const MAX_BACKLOG: usize = 4 << 20;

/// Time for which lines are collected before the next write, when there are many.
const WRITE_INTERVAL: Duration = Duration::from_millis(20);

/// Time for the last lines when the log ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The log of a running relay.
#[derive(Debug, Clone)]
pub struct Log {
    config: LogConfig,
    queue: Arc<LogQueue>,
}

#[derive(Debug, Default)]
struct LogQueue {
    pending: Mutex<PendingLines>,
    not_empty: Condvar,
}

#[derive(Debug, Default)]
struct PendingLines {
    text: Vec<u8>,
    rate_limiter: LogRateLimiter,
    dropped: u64,
    closed: bool,
}

/// Ends the log when dropped: lines that were added before the drop are written to standard output first, as far as
/// standard output accepts them within two seconds.
#[derive(Debug)]
pub struct LogWriter {
    queue: Arc<LogQueue>,
    /// Receives nothing. The end of the writing thread disconnects the channel.
    ended: Receiver<()>,
}

impl Log {
    /// Starts the writing thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(config: LogConfig) -> std::io::Result<(Self, LogWriter)> {
        let lines = Arc::new(LogQueue::default());
        let writing = Arc::clone(&lines);
        let (running, ended) = channel();
        let write = move || {
            write_lines(&writing, config.format);
            drop(running);
        };
        std::thread::Builder::new().name("log".into()).spawn(write)?;
        Ok((Self { config, queue: Arc::clone(&lines) }, LogWriter { queue: lines, ended }))
    }

    /// Adds the line of `event`, if the event has a line at the configured level.
    pub fn write(&self, event: &Event) {
        if !select::is_logged(event, self.config.level) || self.is_suppressed(event) {
            return;
        }
        let line = format_line(&select::redacted(event, self.config.redact), self.config.format);
        let mut waiting = self.queue.lock();
        if waiting.text.len() + line.len() > MAX_BACKLOG {
            waiting.dropped += 1;
            return;
        }
        let was_empty = waiting.text.is_empty();
        waiting.text.extend_from_slice(line.as_bytes());
        drop(waiting);
        if was_empty {
            self.queue.not_empty.notify_one();
        }
    }

    /// Returns whether `event` exceeds the limit for lines that unauthenticated peers can cause. If so, the event is
    /// counted for a summary.
    fn is_suppressed(&self, event: &Event) -> bool {
        let Some((reason, source)) = flood::limited_reason(event) else { return false };
        let mut waiting = self.queue.lock();
        let is_first = waiting.rate_limiter.next_summary_at().is_none();
        let is_admitted = waiting.rate_limiter.admit(reason, source, Instant::now());
        drop(waiting);
        if is_first && !is_admitted {
            // Wakes up the writing thread, which writes the summary later.
            self.queue.not_empty.notify_one();
        }
        !is_admitted
    }
}

impl LogQueue {
    fn lock(&self) -> MutexGuard<'_, PendingLines> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a line or a summary is to be written, or the log ends.
    fn wait(&self) -> MutexGuard<'_, PendingLines> {
        let mut waiting = self.lock();
        while waiting.text.is_empty() && !waiting.closed {
            let due = waiting.rate_limiter.next_summary_at().map(|due| due.saturating_duration_since(Instant::now()));
            waiting = match due {
                Some(Duration::ZERO) => break,
                Some(span) => self.not_empty.wait_timeout(waiting, span).unwrap_or_else(PoisonError::into_inner).0,
                None => self.not_empty.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            };
        }
        waiting
    }
}

fn write_lines(lines: &LogQueue, format: LogFormat) {
    loop {
        let mut waiting = lines.wait();
        let mut text = std::mem::take(&mut waiting.text);
        let (dropped, closed) = (std::mem::take(&mut waiting.dropped), waiting.closed);
        let summaries = waiting.rate_limiter.summaries(Instant::now(), closed);
        drop(waiting);
        summaries.iter().for_each(|summary| text.extend_from_slice(format_line(summary, format).as_bytes()));
        if dropped > 0 {
            text.extend_from_slice(format!("log: {dropped} lines dropped, standard output is too slow\n").as_bytes());
        }
        // Errors are ignored: the relay continues when standard output is closed.
        let mut stdout = std::io::stdout().lock();
        let _ = atomic_chunks(&text).try_for_each(|piece| stdout.write_all(piece).and_then(|()| stdout.flush()));
        drop(stdout);
        if closed {
            return;
        }
        std::thread::sleep(WRITE_INTERVAL);
    }
}

/// Splits the text into chunks of whole lines that a pipe accepts atomically (`PIPE_BUF`, pipe(7)): after an upgrade,
/// two processes write to the same pipe.
fn atomic_chunks(mut text: &[u8]) -> impl Iterator<Item = &[u8]> {
    const PIPE_BUF: usize = 4096;
    std::iter::from_fn(move || {
        let end = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte == b'\n');
        let fits = &text[..text.len().min(PIPE_BUF)];
        let first_line = || text.iter().position(|byte| *byte == b'\n');
        let length = end(fits).or_else(first_line).map_or(text.len(), |end| end + 1);
        let (piece, rest) = text.split_at(length);
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.not_empty.notify_one();
        // An error is expected: the thread has ended, or standard output is stalled.
        let _ = self.ended.recv_timeout(FLUSH_TIMEOUT);
    }
}

fn timestamp() -> String {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(0);
    let date = time::OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    let (hour, minute, second) = date.to_hms();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since_epoch.subsec_millis())
}

/// Returns the line of `event`, including the line feed.
fn format_line(event: &Event, format: LogFormat) -> String {
    let mut line = String::with_capacity(400);
    match format {
        LogFormat::Text => text_line(&mut line, event),
        LogFormat::Json => json_line(&mut line, event),
    }
    line.push('\n');
    line
}

fn json_line(line: &mut String, event: &Event) {
    #[derive(serde::Serialize)]
    struct TimestampedEvent<'a> {
        time: String,
        #[serde(flatten)]
        event: &'a Event,
    }
    let stamped = TimestampedEvent { time: timestamp(), event };
    *line =
        serde_json::to_string(&stamped).unwrap_or_else(|error| format!(r#"{{"event":"log_error","error":"{error}"}}"#));
}

/// Appends the text line of `event`: the time, a space, and the text.
pub fn text_line(line: &mut String, event: &Event) {
    line.push_str(&timestamp());
    let written = match event {
        Event::Listening { listener, kind, address } => {
            write!(line, " listening listener={listener} kind={kind} address={address}")
        }
        Event::ProfileApplied { place, profile, settings } => write!(line, " profile place={place} profile={profile}")
            .and_then(|()| settings.iter().try_for_each(|applied| write!(line, " [{applied}]"))),
        Event::Congestion(congestion) => write_congestion(line, congestion),
        Event::Request(request) => write_request(line, request),
        Event::Closed(closed) => write_closed(line, closed),
        Event::AcceptPaused { listener, reason } => write!(line, " accept paused listener={listener} reason={reason}"),
        Event::AcceptResumed { listener } => write!(line, " accept resumed listener={listener}"),
        Event::BypassBegan { listener, reason } => write!(line, " passing by listener={listener} reason={reason}"),
        Event::BypassEnded { listener, reason } => write!(line, " catching again listener={listener} reason={reason}"),
        Event::RelayUnreachable { relay, cause, detail } => {
            write!(line, " relay unreachable relay={relay} cause={cause}")
                .and_then(|()| write_optional(line, "detail", detail.as_deref().map(quoted)))
        }
        Event::RelayReachable { relay, duration } => {
            write!(line, " relay reachable again relay={relay} seconds={:.3}", duration.as_secs_f64())
        }
        Event::FleetChanged { relays, joined, draining, left } => write!(line, " fleet relays={relays}")
            .and_then(|()| write_names(line, "joined", joined))
            .and_then(|()| write_names(line, "draining", draining))
            .and_then(|()| write_names(line, "left", left)),
        Event::EtcdUnreachable { server, detail, known } => {
            write!(line, " etcd unreachable server={server} known={known} detail={detail:?}")
        }
        Event::EtcdReachable { server, duration } => {
            write!(line, " etcd reachable again server={server} seconds={:.3}", duration.as_secs_f64())
        }
        Event::PathChanged { prefix, from, to, why, .. } => {
            line.push_str(" path changed");
            write_optional(line, "to", prefix.as_ref())
                .and_then(|()| write!(line, " from={} path={} why={}", quoted(from), quoted(to), quoted(why)))
        }
        Event::Reloaded { listeners } => write!(line, " reloaded listeners={listeners}"),
        Event::ReloadRejected { mistakes } => {
            write!(line, " reload rejected, the old configuration remains in force: {}", mistakes.join("; "))
        }
        Event::Upgraded { pid, version } => write!(line, " upgraded pid={pid} version={version}"),
        Event::UpgradeFailed { why } => write!(line, " upgrade failed, this process continues to serve: {why}"),
        Event::Draining { open, deadline } => {
            write!(line, " draining open={open} deadline={}s", deadline.as_secs_f64())
        }
        Event::Stopped { aborted } => write!(line, " stopped aborted={aborted}"),
        Event::Suppressed { reason, lines, duration } => {
            write!(line, " suppressed reason={reason} lines={lines} seconds={:.3}", duration.as_secs_f64())
        }
        Event::QuotaUsed { scope, name, quota, until } => {
            line.push_str(" quota used");
            write_optional(line, scope, name.as_deref().map(quoted))
                .and_then(|()| write!(line, " quota={quota} until={until}"))
        }
        Event::Warning { message } => write!(line, " warning {message}"),
    };
    written.expect("invariant: writing to a String does not fail");
}

fn write_congestion(line: &mut String, c: &CongestionStatus) -> std::fmt::Result {
    write!(line, " congestion control={} in_use={}", c.name, c.in_use)?;
    write_optional(line, "from", c.from.as_deref().map(quoted))?;
    write_optional(line, "why", c.why.as_deref().map(quoted))
}

fn write_request(line: &mut String, r: &RequestCompleted) -> std::fmt::Result {
    let (session, method, url, status) = (r.session, &r.method, &r.url, r.status);
    write!(line, " request session={session} method={method} url={url} status={status} reused={}", r.reused)?;
    write!(line, " seconds={:.3} up={} down={}", r.duration.as_secs_f64(), r.bytes_up, r.bytes_down)
}

fn write_closed(line: &mut String, c: &SessionClosed) -> std::fmt::Result {
    write!(line, " closed session={} listener={}", c.session, c.listener)?;
    write_optional(line, "client", c.client)?;
    write_optional(line, "tls", c.tls)?;
    write_optional(line, "http", c.http)?;
    write_optional(line, "user", c.user.as_deref().map(quoted))?;
    write_optional(line, "peer", c.peer.as_deref().map(quoted))?;
    write_optional(line, "trace", c.trace)?;
    write_optional(line, "target", c.target.as_ref())?;
    write_optional(line, "server_name", c.server_name.as_ref())?;
    write_optional(line, "server", c.server)?;
    write!(line, " path={} end={}", c.path, c.end.as_str())?;
    write_optional(line, "detail", c.detail.as_deref().map(quoted))?;
    write!(line, " seconds={:.3}", c.duration.as_secs_f64())?;
    write_optional(line, "connect", c.connect.map(milliseconds))?;
    let hops: Vec<String> = c.hops.iter().copied().map(milliseconds).collect();
    write_optional(line, "hops", (!hops.is_empty()).then(|| hops.join(",")))?;
    write!(line, " up={} down={} spliced={}", c.bytes_up, c.bytes_down, c.bytes_spliced)?;
    write_section(line, "down", c.down)?;
    write_section(line, "up", c.up)?;
    write_optional(line, "limited", c.limited)?;
    write_optional(line, "limited_why", c.limited_why.as_deref().map(quoted))?;
    c.chosen.as_deref().map_or(Ok(()), |chosen| write_chosen(line, chosen))
}

fn write_chosen(line: &mut String, chosen: &ChoiceRecord) -> std::fmt::Result {
    write!(line, " reason={}", chosen.reason)?;
    write_optional(line, "predicted", chosen.predicted.map(milliseconds))?;
    write_optional(line, "took", chosen.took.map(milliseconds))?;
    write!(line, " why={}", quoted(&chosen.why))
}

fn write_section(line: &mut String, side: &str, info: Option<SectionInfo>) -> std::fmt::Result {
    let Some(info) = info else { return Ok(()) };
    write!(line, " {side}_rtt={} {side}_retrans={}", milliseconds(info.rtt), info.retransmitted)?;
    write_start(line, side, info.start)
}

/// Writes how the section started. The default (cold, without a jump), which applies to most sections, is omitted.
fn write_start(line: &mut String, side: &str, start: SectionStart) -> std::fmt::Result {
    if start == SectionStart::default() {
        return Ok(());
    }
    write!(line, " {side}_start={}", start.state().as_str())?;
    write_optional(line, &format!("{side}_earlier"), (start.earlier_sessions > 0).then_some(start.earlier_sessions))?;
    let Some(jump) = start.jump else { return Ok(()) };
    write!(line, " {side}_jump={} {side}_outcome={}", jump.bytes, jump.outcome.as_str())
}

fn write_names(line: &mut String, key: &str, names: &[String]) -> std::fmt::Result {
    write_optional(line, key, (!names.is_empty()).then(|| names.join(",")))
}

fn write_optional(line: &mut String, key: &str, value: Option<impl std::fmt::Display>) -> std::fmt::Result {
    value.map_or(Ok(()), |value| write!(line, " {key}={value}"))
}

fn milliseconds(span: Duration) -> String {
    format!("{:.2}ms", span.as_secs_f64() * 1000.0)
}

/// Returns `text` in quotes with escapes: text from a client may contain line breaks and escape sequences.
fn quoted(text: &str) -> String {
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use ekiden_proto::cause::Cause;
    use ekiden_proto::resume::{Jump, ResumeOutcome};

    use super::*;

    #[test]
    fn relay_state_lines_have_no_direction() {
        let relay = || "osaka".to_owned();
        let unreachable = Event::RelayUnreachable { relay: relay(), cause: Cause::Refused, detail: None };
        let reachable = Event::RelayReachable { relay: relay(), duration: Duration::from_secs(2) };
        for (event, text, name) in [
            (unreachable, " relay unreachable relay=osaka cause=refused\n", "relay_unreachable"),
            (reachable, " relay reachable again relay=osaka seconds=2.000\n", "relay_reachable"),
        ] {
            let line = format_line(&event, LogFormat::Text);
            assert!(line.ends_with(text), "{line}");
            let line = format_line(&event, LogFormat::Json);
            assert!(line.contains(&format!(r#""event":"{name}""#)), "{line}");
        }
    }

    #[test]
    fn closing_line_shows_section_reuse_and_resume() {
        let line = |earlier_sessions, jump| {
            let (mut line, start) = (String::new(), SectionStart { earlier_sessions, jump });
            write_section(&mut line, "up", Some(SectionInfo { start, ..SectionInfo::default() })).unwrap();
            line.strip_prefix(" up_rtt=0.00ms up_retrans=0").unwrap().to_owned()
        };
        let jump = |bytes, outcome| Some(Jump { bytes, outcome });
        assert_eq!(line(0, None), "");
        assert_eq!(line(3, None), " up_start=reused up_earlier=3");
        let resumed = " up_start=resumed up_jump=9000 up_outcome=confirmed";
        assert_eq!(line(0, jump(9000, ResumeOutcome::Confirmed)), resumed);
        assert_eq!(line(0, jump(0, ResumeOutcome::Rejected)), " up_start=cold up_jump=0 up_outcome=rejected");
    }

    #[test]
    fn chunks_contain_whole_lines() {
        let line = |length: usize| [vec![b'x'; length], vec![b'\n']].concat();
        let text = [line(3000), line(1000), line(94), line(5000), line(0), b"no end".to_vec()].concat();
        let lengths: Vec<_> = atomic_chunks(&text).map(<[u8]>::len).collect();
        assert_eq!(lengths, [3001 + 1001, 95, 5001, 1, 6]);
        assert_eq!(atomic_chunks(&text).collect::<Vec<_>>().concat(), text);
        assert_eq!(atomic_chunks(b"").count(), 0);
    }
}
