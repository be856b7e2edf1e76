//! One interface: the claims of all threads on its rate, and the allocation.

use std::sync::{Mutex, PoisonError};

use ekiden_proto::share::{Allocation, Claim, allocate, jain_index};

use crate::status::InterfaceView;

/// An interface whose rate sections share.
#[derive(Debug)]
pub struct SharedInterface {
    name: String,
    state: Mutex<InterfaceState>,
}

#[derive(Debug)]
struct InterfaceState {
    /// Bytes a second, with the headers of all packets.
    rate: u64,
    /// By the numbers of the desks.
    reports: Vec<ShareReport>,
    division: Allocation,
    /// Total weight of the sections that started since then.
    new_weight: u64,
    /// All claims; kept to reuse the allocation.
    claims: Vec<Claim>,
}

/// The report of one thread.
#[derive(Debug, Clone, Default)]
pub struct ShareReport {
    /// Of the members that send.
    pub claims: Vec<Claim>,
    /// The rates of the thread's sections.
    pub stats: FairnessStats,
}

/// Rates of sections over the last second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FairnessStats {
    /// Bytes a second of all.
    pub rate: f64,
    /// How many were held back most of the time, so that their shares can be compared.
    pub limited: usize,
    /// Sum of rates per unit of weight, in bytes per second.
    pub rate_sum: f64,
    /// The squares of that.
    pub rate_square_sum: f64,
}

impl SharedInterface {
    /// An interface without active sections.
    pub fn new(name: &str, rate: u64) -> Self {
        let books = InterfaceState {
            rate,
            reports: Vec::new(),
            division: Allocation::empty(rate),
            new_weight: 0,
            claims: Vec::new(),
        };
        Self { name: name.to_owned(), state: Mutex::new(books) }
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Goes over to another rate.
    pub fn set_rate(&self, rate: u64) {
        let mut books = self.lock();
        books.rate = rate;
        books.divide();
    }

    /// Replaces the report of a thread and allocates the rate anew.
    pub fn exchange_report(&self, shaper: usize, post: &mut ShareReport) -> Allocation {
        let mut books = self.lock();
        if books.reports.len() <= shaper {
            books.reports.resize_with(shaper + 1, ShareReport::default);
        }
        std::mem::swap(&mut books.reports[shaper], post);
        books.divide()
    }

    /// The ceiling of a section that has just started; it falls with each start until the next allocation.
    pub fn initial_ceiling(&self, weight: u32) -> u64 {
        let mut books = self.lock();
        books.new_weight += u64::from(weight);
        let alone = books.division.ceiling(Claim { weight, demand: 0 });
        (u128::from(alone) * u128::from(weight) / u128::from(books.new_weight)) as u64
    }

    /// The interface as `ekiden status` shows it.
    pub fn view(&self) -> InterfaceView {
        let books = self.lock();
        let all = || books.reports.iter().map(|post| post.stats);
        let (held, sum, squares) =
            (all().map(|f| f.limited).sum(), all().map(|f| f.rate_sum).sum(), all().map(|f| f.rate_square_sum).sum());
        InterfaceView {
            interface: self.name.clone(),
            rate_bits_per_second: books.rate * 8,
            sending: books.reports.iter().map(|post| post.claims.len()).sum(),
            level_bits_per_second: books.division.level().map(|level| level * 8),
            sent_bits_per_second: (all().map(|f| f.rate).sum::<f64>() * 8.0) as u64,
            fairness: jain_index(held, sum, squares),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, InterfaceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InterfaceState {
    fn divide(&mut self) -> Allocation {
        self.claims.clear();
        self.claims.extend(self.reports.iter().flat_map(|post| &post.claims));
        self.new_weight = 0;
        self.division = allocate(self.rate, &mut self.claims);
        self.division
    }
}
