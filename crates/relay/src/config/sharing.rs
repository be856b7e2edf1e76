//! `[[interface]]` and `[user.NAME]`: interfaces whose rate is shared, and the weights and limits of users.

use std::collections::BTreeMap;

use ekiden_proto::units::Rate;

use super::account::{self, AccountLimits};
use super::capture;
use super::reader::TableReader;
use super::shared::ReadContext;
use super::value::{ConfigValue, TomlType, rate_from};

/// An interface whose rate is shared by all sections that send through it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceConfig {
    /// Name of the interface, which need not exist yet.
    pub name: String,
    /// The rate of the interface, including the headers of all packets.
    pub rate: Rate,
}

/// The name of the table for all users without a table of their own.
const EVERY_OTHER: &str = "*";

/// The weights and the limits of users.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserSettings(BTreeMap<String, UserConfig>);

/// The settings of a table `[user.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UserConfig {
    weight: u32,
    limits: AccountLimits,
}

impl UserSettings {
    fn of(&self, user: &str) -> Option<&UserConfig> {
        self.0.get(user).or_else(|| self.0.get(EVERY_OTHER))
    }

    /// Returns the weight of a user, or of a session without a user name.
    #[must_use]
    pub fn weight_of(&self, user: Option<&str>) -> u32 {
        user.and_then(|user| self.of(user)).map_or(1, |config| config.weight)
    }

    /// Returns the limits of a user.
    #[must_use]
    pub fn limits_of(&self, user: &str) -> AccountLimits {
        self.of(user).map(|config| config.limits).unwrap_or_default()
    }

    /// Returns the names of users with limits of their own.
    pub fn limited_names(&self) -> impl Iterator<Item = &str> {
        let limited = self.0.iter().filter(|(_, config)| config.limits != AccountLimits::default());
        limited.map(|(name, _)| name.as_str()).filter(|name| *name != EVERY_OTHER)
    }

    /// Whether any user has a quota.
    pub(super) fn has_quota(&self) -> bool {
        self.0.values().any(|config| config.limits.quota.is_some())
    }
}

/// Reads the tables `[[interface]]`.
pub(super) fn read_interfaces(readers: Vec<TableReader<'_>>) -> Vec<InterfaceConfig> {
    let mut interfaces: Vec<InterfaceConfig> = Vec::new();
    for reader in readers {
        let name = reader.required("name").map(|capture::InterfaceName(name)| name);
        let rate = reader.required("rate").map(|InterfaceRate(rate)| rate);
        if name.as_ref().is_some_and(|name| interfaces.iter().any(|known| known.name == *name)) {
            reader.error("name", "each interface once");
        }
        interfaces.extend(name.zip(rate).map(|(name, rate)| InterfaceConfig { name, rate }));
        reader.finish();
    }
    interfaces
}

/// Reads the tables `[user.NAME]`, after the listeners and their users.
pub(super) fn read_users(readers: Vec<(&str, TableReader<'_>)>, shared: &ReadContext) -> UserSettings {
    let mut users = BTreeMap::new();
    for (name, reader) in readers {
        let is_known = if name == EVERY_OTHER { shared.may_have_users() } else { shared.may_have_user(name) };
        if !is_known {
            reader.table_error("a user name in the users file of a listener, or \"*\" for every user without a table");
        }
        let weight = reader.optional_or("weight", ShareWeight(1)).0;
        users.insert(name.to_owned(), UserConfig { weight, limits: account::read_limits(&reader) });
        reader.finish();
    }
    UserSettings(users)
}

/// The weight of a user or a listener.
pub(super) struct ShareWeight(pub u32);

impl ConfigValue for ShareWeight {
    const EXPECTED: &'static str = "a whole number from 1 to 1000; users without a weight have 1";
    const TOML_TYPE: TomlType = TomlType::Number;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().ok().filter(|weight| (1..=1000).contains(weight)).map(Self).ok_or(Self::EXPECTED)
    }
}

/// The rate of an interface.
struct InterfaceRate(Rate);

impl ConfigValue for InterfaceRate {
    const EXPECTED: &'static str = r#"a rate from "64kbit/s" to "400Gbit/s", like "100Mbit/s""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        rate_from(text, 64_000).map(Self).ok_or(Self::EXPECTED)
    }
    fn suggestion(text: &str) -> Option<String> {
        Rate::suggestion(text)
    }
}
