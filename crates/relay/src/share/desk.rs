//! What one thread does for its sections: finds the interfaces they leave by, looks at those that send, and gives them their
//! ceilings. No socket is known beyond its thread.

use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_sys::pacing::is_multipath;
use ekiden_sys::route::{Routes, interface_name};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

use super::interface::{Figures, Post};
use super::{Interface, Member, Shares};

/// How often sections are looked at.
const ROUND: Duration = Duration::from_millis(100);

/// Most sections that are looked at in a round; more than these have their turns in later ones. A look costs some 2 us.
const MOST_LOOKS: usize = 1000;

/// How often figures are made.
const FIGURES: Duration = Duration::from_secs(1);

/// A thread's part of all shares.
#[derive(Debug)]
pub struct Desk {
    number: usize,
    shares: Arc<Shares>,
    interfaces: RefCell<Vec<Served>>,
    routes: OnceCell<Option<Routes>>,
    /// The members that send; whose turn it is comes first.
    sending: RefCell<VecDeque<Rc<Member>>>,
    /// Since when somebody has been sending, or when there were figures last.
    figures_at: RefCell<Option<Instant>>,
    woken: Notify,
}

/// An interface, and what this desk says of it.
#[derive(Debug)]
struct Served {
    interface: Arc<Interface>,
    figures: Figures,
    /// Kept for its room.
    post: Post,
}

impl Desk {
    /// Nobody sends.
    pub fn new(shares: Arc<Shares>) -> Rc<Self> {
        Rc::new(Self {
            number: shares.next_desk(),
            shares,
            interfaces: RefCell::default(),
            routes: OnceCell::new(),
            sending: RefCell::default(),
            figures_at: RefCell::default(),
            woken: Notify::new(),
        })
    }

    /// Follows a change of the interfaces: the members of those that are gone are free.
    pub fn follow(&self) {
        let interfaces = self.shares.all();
        self.sending.borrow_mut().retain(|member| {
            let stays = interfaces.iter().any(|interface| member.is_at(interface));
            if !stays {
                member.leave();
            }
            stays
        });
        let served = |interface| Served { interface, figures: Figures::default(), post: Post::default() };
        *self.interfaces.borrow_mut() = interfaces.into_iter().map(served).collect();
    }

    /// Makes a section a member, where the interface that it leaves by is shared.
    pub fn member(self: &Rc<Self>, stream: &Rc<TcpStream>, weight: u32) -> Option<Rc<Member>> {
        let interfaces = self.interfaces.borrow();
        if interfaces.is_empty() || is_multipath(stream.as_fd()) {
            return None;
        }
        let routes = self.routes.get_or_init(|| Routes::open().ok()).as_ref()?;
        let name = interface_name(routes.of_socket(stream.as_fd()).ok()?).ok()?;
        let served = interfaces.iter().find(|served| served.interface.name() == name)?;
        Some(Member::new(stream, &served.interface, self, weight))
    }

    /// Whether this interface is still shared.
    pub fn serves(&self, member: &Member) -> bool {
        self.interfaces.borrow().iter().any(|served| member.is_at(&served.interface))
    }

    /// Looks at a member from now on.
    pub fn take(&self, member: Rc<Member>) {
        self.sending.borrow_mut().push_back(member);
        self.woken.notify_one();
    }

    /// Makes rounds for as long as somebody sends.
    pub async fn run(self: Rc<Self>) {
        loop {
            self.woken.notified().await;
            let mut rounds = interval(ROUND);
            rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                rounds.tick().await;
                self.round(Instant::now());
                if self.sending.borrow().is_empty() {
                    break;
                }
            }
        }
    }

    /// Looks, says what is claimed, and gives out what there is.
    pub fn round(&self, now: Instant) {
        let mut sending = self.sending.borrow_mut();
        let looks = self.look(&mut sending, now);
        self.make_figures(&sending, now);
        for served in &mut *self.interfaces.borrow_mut() {
            let members = || sending.iter().filter(|member| member.is_at(&served.interface));
            served.post.claims.clear();
            served.post.claims.extend(members().map(|member| member.claim()));
            served.post.figures = served.figures;
            let division = served.interface.exchange(self.number, &mut served.post);
            for member in sending.iter().rev().take(looks).filter(|member| member.is_at(&served.interface)) {
                // One that is gone is found out by the next look.
                let _ = member.bound(&division);
            }
        }
    }

    /// Looks at those whose turn it is, which are the last then; how many they are.
    fn look(&self, sending: &mut VecDeque<Rc<Member>>, now: Instant) -> usize {
        let mut stay = 0;
        for _ in 0..sending.len().min(MOST_LOOKS) {
            let Some(member) = sending.pop_front() else { break };
            if member.look(now) {
                sending.push_back(member);
                stay += 1;
            } else {
                member.leave();
            }
        }
        stay
    }

    /// What members got in the last second, once a second; nothing when nobody sends.
    fn make_figures(&self, sending: &VecDeque<Rc<Member>>, now: Instant) {
        let since = *self.figures_at.borrow_mut().get_or_insert(now);
        if sending.is_empty() {
            self.figures_at.take();
        } else if now.saturating_duration_since(since) < FIGURES {
            return;
        } else {
            self.figures_at.replace(Some(now));
        }
        for served in &mut *self.interfaces.borrow_mut() {
            let mut figures = Figures::default();
            let members = sending.iter().filter(|member| member.is_at(&served.interface));
            for (got, weight) in members.filter_map(|member| member.got(now)) {
                figures.rate += got.rate;
                if got.held {
                    figures.held += 1;
                    figures.sum += got.rate / weight;
                    figures.squares += (got.rate / weight).powi(2);
                }
            }
            served.figures = figures;
        }
    }
}
