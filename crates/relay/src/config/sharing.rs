//! `[[interface]]` and `[user.NAME]`: whose packets share what, and by which weights.

use std::collections::BTreeMap;

use ekiden_proto::units::Rate;

use super::capture;
use super::reader::Reader;
use super::shared::Shared;
use super::value::{Shape, Value};

/// An interface whose rate is shared by all sections that leave by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name; it need not be there yet.
    pub name: String,
    /// What leaves by it, with the headers of all packets.
    pub rate: Rate,
}

/// How many shares the sessions of a user have; one for everybody else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Weights(BTreeMap<String, u32>);

impl Weights {
    /// The weight of a user, or of somebody without a name.
    #[must_use]
    pub fn of(&self, user: Option<&str>) -> u32 {
        user.and_then(|user| self.0.get(user)).copied().unwrap_or(1)
    }
}

/// Reads the tables `[[interface]]`.
pub(super) fn interfaces(readers: Vec<Reader<'_>>) -> Vec<Interface> {
    let mut interfaces: Vec<Interface> = Vec::new();
    for reader in readers {
        let name = reader.required("name").map(|capture::Interface(name)| name);
        let rate = reader.required("rate").map(|ShareRate(rate)| rate);
        if name.as_ref().is_some_and(|name| interfaces.iter().any(|known| known.name == *name)) {
            reader.mistake("name", "each interface once");
        }
        interfaces.extend(name.zip(rate).map(|(name, rate)| Interface { name, rate }));
        reader.finish();
    }
    interfaces
}

/// Reads the tables `[user.NAME]`; the listeners and their users are known by then.
pub(super) fn weights(readers: Vec<(&str, Reader<'_>)>, shared: &Shared) -> Weights {
    let mut weights = BTreeMap::new();
    for (name, reader) in readers {
        if !shared.may_have_user(name) {
            reader.note("the name of somebody in a file that is some listener's users");
        }
        weights.insert(name.to_owned(), reader.or("weight", Weight(1)).0);
        reader.finish();
    }
    Weights(weights)
}

/// How many shares somebody has.
pub(super) struct Weight(pub u32);

impl Value for Weight {
    const EXPECTED: &'static str = "a whole number from 1 to 1000: how many shares there are for one of everybody else";
    const SHAPE: Shape = Shape::Number;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().ok().filter(|weight| (1..=1000).contains(weight)).map(Self).ok_or(Self::EXPECTED)
    }
}

/// The rate of an interface.
struct ShareRate(Rate);

impl Value for ShareRate {
    const EXPECTED: &'static str = r#"a rate from "64kbit/s" to "400Gbit/s", like "100Mbit/s""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        let sensible = |rate: &Rate| (64_000..=400_000_000_000).contains(&rate.bits_per_second());
        text.parse().ok().filter(sensible).map(Self).ok_or(Self::EXPECTED)
    }
    fn meant(text: &str) -> Option<String> {
        Rate::meant(text)
    }
}
