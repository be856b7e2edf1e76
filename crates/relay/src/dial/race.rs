//! Happy Eyeballs, version 2 (RFC 8305): both address families are looked up in parallel, attempts start one after the
//! other without waiting for earlier ones to fail, and the first connection wins.
//!
//! The code is generic over the connection, so tests run in virtual time without a socket.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use ekiden_proto::cause::Cause;
use tokio::time::{Instant, sleep_until};

use super::cause_of;
use super::resolver::{FamilyLookup, Lookup};

/// Time for which an IPv4 answer waits for the IPv6 answer (RFC 8305, 3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// Time after which the next attempt starts in parallel with the current one (RFC 8305, 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects to the addresses of a name by staggered parallel attempts, and returns the first established connection.
///
/// # Errors
/// The most informative cause of all attempts: for example, a refused connection is preferred to a timeout.
pub async fn race<T>(
    lookup: Lookup<'_>,
    port: u16,
    judge: &dyn Fn(IpAddr) -> Result<(), Cause>,
    connect: impl AsyncFn(SocketAddr) -> io::Result<T>,
) -> Result<(T, SocketAddr), Cause> {
    let mut queue = AddressQueue::default();
    let (mut v6, mut v4) = (Some(lookup.v6), Some(lookup.v4));
    let mut attempts: Vec<ConnectAttempt<'_, T>> = Vec::new();
    let mut next_start = Instant::now();
    loop {
        let is_resolving = v6.is_some() || v4.is_some();
        if !is_resolving && attempts.is_empty() && queue.is_empty() {
            return Err(queue.final_cause());
        }
        tokio::select! {
            biased;
            (address, result) = first_ready(&mut attempts) => match result {
                Ok(connection) => return Ok((connection, address)),
                Err(error) => {
                    queue.record_failure(cause_of(&error));
                    next_start = Instant::now();
                }
            },
            answer = next_answer(&mut v6) => {
                queue.add(answer, judge);
                if attempts.is_empty() {
                    next_start = Instant::now();
                }
            }
            answer = next_answer(&mut v4) => {
                queue.add(answer, judge);
                if v6.is_some() {
                    next_start = next_start.max(Instant::now() + RESOLUTION_DELAY);
                }
            }
            () = wait_until(next_start), if !queue.is_empty() => {
                let address = SocketAddr::new(queue.next().expect("invariant: not empty"), port);
                let connect = &connect;
                attempts.push(Box::pin(async move { (address, connect(address).await) }));
                next_start = Instant::now() + ATTEMPT_DELAY;
            }
        }
    }
}

type ConnectAttempt<'a, T> = Pin<Box<dyn Future<Output = (SocketAddr, io::Result<T>)> + 'a>>;

/// Waits until `start`. Returns at once for a past instant, for which the timer would round up to the next millisecond.
async fn wait_until(start: Instant) {
    if start > Instant::now() {
        sleep_until(start).await;
    }
}

/// Waits for the first attempt to finish and removes it from `attempts`. Never completes if `attempts` is empty.
async fn first_ready<T>(attempts: &mut Vec<ConnectAttempt<'_, T>>) -> (SocketAddr, io::Result<T>) {
    std::future::poll_fn(|cx| {
        for at in 0..attempts.len() {
            if let Poll::Ready(finished) = attempts[at].as_mut().poll(cx) {
                drop(attempts.swap_remove(at));
                return Poll::Ready(finished);
            }
        }
        Poll::Pending
    })
    .await
}

/// Waits for the answer of a lookup, and never completes after the answer has been returned.
async fn next_answer(lookup: &mut Option<FamilyLookup<'_>>) -> Result<Vec<IpAddr>, Cause> {
    match lookup {
        Some(pending) => {
            let answer = pending.await;
            *lookup = None;
            answer
        }
        None => std::future::pending().await,
    }
}

/// The addresses to try, and the most informative cause so far.
#[derive(Default)]
struct AddressQueue {
    v6: VecDeque<IpAddr>,
    v4: VecDeque<IpAddr>,
    last_was_v6: bool,
    failure: Option<Cause>,
}

impl AddressQueue {
    fn is_empty(&self) -> bool {
        self.v6.is_empty() && self.v4.is_empty()
    }

    fn add(&mut self, answer: Result<Vec<IpAddr>, Cause>, judge: &dyn Fn(IpAddr) -> Result<(), Cause>) {
        match answer {
            Err(cause) => self.record_failure(cause),
            Ok(addresses) if addresses.is_empty() => self.record_failure(Cause::NameNotFound),
            Ok(addresses) => {
                for ip in addresses {
                    if let Err(cause) = judge(ip) {
                        self.record_failure(cause);
                    } else if ip.is_ipv6() {
                        self.v6.push_back(ip);
                    } else {
                        self.v4.push_back(ip);
                    }
                }
            }
        }
    }

    /// Returns the next address. The address families alternate, IPv6 first (RFC 8305, 4).
    fn next(&mut self) -> Option<IpAddr> {
        let v6_first = !self.last_was_v6;
        let next = if v6_first {
            self.v6.pop_front().or_else(|| self.v4.pop_front())
        } else {
            self.v4.pop_front().or_else(|| self.v6.pop_front())
        };
        self.last_was_v6 = next.is_some_and(|ip| ip.is_ipv6());
        next
    }

    fn record_failure(&mut self, cause: Cause) {
        let is_more_specific = self.failure.is_none_or(|known| cause_rank(cause) > cause_rank(known));
        if is_more_specific {
            self.failure = Some(cause);
        }
    }

    fn final_cause(&self) -> Cause {
        self.failure.unwrap_or(Cause::NameNotFound)
    }
}

/// Ranks a cause by how informative it is; a missing address of one family has the lowest rank.
fn cause_rank(cause: Cause) -> u8 {
    match cause {
        Cause::NameNotFound => 0,
        Cause::NameServerFailed => 1,
        Cause::Unreachable => 2,
        Cause::TimedOut => 3,
        Cause::Exhausted => 4,
        Cause::Denied => 5,
        Cause::Reset => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    const V6: &str = "2001:db8::1";
    const V4: &str = "192.0.2.1";

    fn answer(after_ms: u64, addresses: &'static [&'static str]) -> FamilyLookup<'static> {
        Box::pin(async move {
            sleep(Duration::from_millis(after_ms)).await;
            Ok(addresses.iter().map(|ip| ip.parse().unwrap()).collect())
        })
    }

    /// Races hosts that connect or fail after a number of milliseconds. Returns the winner and the duration in ms.
    async fn run(
        lookup: Lookup<'static>,
        hosts: &[(&str, u64, Result<(), io::ErrorKind>)],
    ) -> (Result<String, Cause>, u64) {
        let start = Instant::now();
        let open = async |address: SocketAddr| {
            let host = hosts.iter().find(|h| h.0.parse::<IpAddr>().unwrap() == address.ip()).unwrap();
            sleep(Duration::from_millis(host.1)).await;
            host.2.map_err(io::Error::from)
        };
        let judge = |ip: IpAddr| match ip.to_string().as_str() {
            "192.0.2.66" => Err(Cause::Denied),
            "10.0.0.1" => Err(Cause::NameNotFound),
            _ => Ok(()),
        };
        let result = race(lookup, 80, &judge, open).await;
        let winner = result.map(|(_, address)| address.ip().to_string());
        (winner, start.elapsed().as_millis() as u64)
    }

    fn both() -> Lookup<'static> {
        Lookup { v6: answer(0, &[V6]), v4: answer(0, &[V4]) }
    }

    #[tokio::test(start_paused = true)]
    async fn ipv6_wins_when_both_work() {
        let (won, took) = run(both(), &[(V6, 30, Ok(())), (V4, 1, Ok(()))]).await;
        assert_eq!((won, took), (Ok(V6.into()), 30));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_ipv6_costs_the_attempt_delay() {
        let (won, took) = run(both(), &[(V6, 100_000, Ok(())), (V4, 10, Ok(()))]).await;
        assert_eq!((won, took), (Ok(V4.into()), 260));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_starts_the_next_attempt_at_once() {
        let (won, took) = run(both(), &[(V6, 5, Err(io::ErrorKind::ConnectionRefused)), (V4, 10, Ok(()))]).await;
        assert_eq!((won, took), (Ok(V4.into()), 15));
    }

    #[tokio::test(start_paused = true)]
    async fn ipv4_waits_the_resolution_delay_for_ipv6() {
        let late = Lookup { v6: answer(40, &[V6]), v4: answer(0, &[V4]) };
        assert_eq!(run(late, &[(V6, 1, Ok(())), (V4, 1, Ok(()))]).await, (Ok(V6.into()), 41));
        let too_late = Lookup { v6: answer(5000, &[V6]), v4: answer(0, &[V4]) };
        assert_eq!(run(too_late, &[(V6, 1, Ok(())), (V4, 1, Ok(()))]).await, (Ok(V4.into()), 51));
    }

    #[tokio::test(start_paused = true)]
    async fn most_specific_cause_is_reported() {
        let unreachable = Err(io::ErrorKind::NetworkUnreachable);
        let refused = Err(io::ErrorKind::ConnectionRefused);
        let (lost, _) = run(both(), &[(V6, 1, unreachable), (V4, 1, refused)]).await;
        assert_eq!(lost, Err(Cause::Refused));
        let nothing = Lookup { v6: answer(0, &[]), v4: answer(0, &[]) };
        assert_eq!(run(nothing, &[]).await.0, Err(Cause::NameNotFound));
    }

    #[tokio::test(start_paused = true)]
    async fn denied_addresses_are_not_dialled() {
        let forbidden = Lookup { v6: answer(0, &[]), v4: answer(0, &["192.0.2.66"]) };
        assert_eq!(run(forbidden, &[]).await.0, Err(Cause::Denied));
    }

    /// The duration must not reveal a concealed address, and the other addresses of the name stay usable.
    #[tokio::test(start_paused = true)]
    async fn concealed_address_is_treated_as_absent() {
        let lookup = |v4| Lookup { v6: answer(40, &[]), v4: answer(0, v4) };
        assert_eq!(run(lookup(&["10.0.0.1"]), &[]).await, run(lookup(&[]), &[]).await);
        assert_eq!(run(lookup(&["10.0.0.1", V4]), &[(V4, 10, Ok(()))]).await.0, Ok(V4.into()));
        let refused = [(V4, 10, Err(io::ErrorKind::ConnectionRefused))];
        assert_eq!(run(lookup(&["10.0.0.1", V4]), &refused).await.0, Err(Cause::Refused));
    }
}
