//! One interface: what the members at all desks claim of its rate, and how it is divided.

use std::sync::{Mutex, PoisonError};

use ekiden_proto::share::{Claim, Division, divide, jain};

use crate::status::InterfaceView;

/// An interface whose rate is shared.
#[derive(Debug)]
pub struct Interface {
    name: String,
    books: Mutex<Books>,
}

#[derive(Debug)]
struct Books {
    /// Bytes a second, with the headers of all packets.
    rate: u64,
    /// By the numbers of the desks.
    desks: Vec<Post>,
    division: Division,
    /// The weight of those who have come since then.
    arrivals: u64,
    /// All claims; kept for its room.
    claims: Vec<Claim>,
}

/// What one desk says.
#[derive(Debug, Clone, Default)]
pub struct Post {
    /// Of the members that send.
    pub claims: Vec<Claim>,
    /// What they have sent.
    pub figures: Figures,
}

/// What members have sent in the last second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    /// Bytes a second of all.
    pub rate: f64,
    /// How many were held back most of the time, so that their shares can be compared.
    pub held: usize,
    /// What they got for each unit of weight, in bytes a second.
    pub sum: f64,
    /// The squares of that.
    pub squares: f64,
}

impl Interface {
    /// Nobody sends.
    pub fn new(name: &str, rate: u64) -> Self {
        let books =
            Books { rate, desks: Vec::new(), division: Division::of_nobody(rate), arrivals: 0, claims: Vec::new() };
        Self { name: name.to_owned(), books: Mutex::new(books) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Goes over to another rate.
    pub fn change(&self, rate: u64) {
        let mut books = self.lock();
        books.rate = rate;
        books.divide();
    }

    /// Takes what a desk says in exchange for what it said before, and divides anew.
    pub fn exchange(&self, desk: usize, post: &mut Post) -> Division {
        let mut books = self.lock();
        if books.desks.len() <= desk {
            books.desks.resize_with(desk + 1, Post::default);
        }
        std::mem::swap(&mut books.desks[desk], post);
        books.divide()
    }

    /// Up to what somebody may send who has just begun: less for each who begins before all is divided anew.
    pub fn welcome(&self, weight: u32) -> u64 {
        let mut books = self.lock();
        books.arrivals += u64::from(weight);
        let alone = books.division.ceiling(Claim { weight, wants: 0 });
        (u128::from(alone) * u128::from(weight) / u128::from(books.arrivals)) as u64
    }

    /// What `ekiden status` shows of it.
    pub fn view(&self) -> InterfaceView {
        let books = self.lock();
        let all = || books.desks.iter().map(|post| post.figures);
        let (held, sum, squares) =
            (all().map(|f| f.held).sum(), all().map(|f| f.sum).sum(), all().map(|f| f.squares).sum());
        InterfaceView {
            interface: self.name.clone(),
            rate_bits_per_second: books.rate * 8,
            sending: books.desks.iter().map(|post| post.claims.len()).sum(),
            level_bits_per_second: books.division.level().map(|level| level * 8),
            sent_bits_per_second: (all().map(|f| f.rate).sum::<f64>() * 8.0) as u64,
            fairness: jain(held, sum, squares),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn divide(&mut self) -> Division {
        self.claims.clear();
        self.claims.extend(self.desks.iter().flat_map(|post| &post.claims));
        self.arrivals = 0;
        self.division = divide(self.rate, &mut self.claims);
        self.division
    }
}
