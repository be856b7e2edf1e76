//! `[profile.NAME]`: named TCP settings, based on another profile or on the defaults of the kernel.

use std::collections::BTreeMap;
use std::sync::Arc;

use ekiden_proto::profile::{Algorithm, BUILT_IN, Profile, Setting};

use super::error::expected_one_of;
use super::reader::TableReader;
use super::value::ScalarText;

/// All profiles by name: the built-in ones and those of the file.
pub(super) struct Profiles(BTreeMap<String, Arc<Profile>>);

/// A profile as configured, before its base is resolved.
struct ProfileDraft<'a> {
    name: &'a str,
    base: Option<String>,
    settings: Vec<Setting>,
}

impl Profiles {
    /// Reads the tables `[profile.NAME]`, which are given with their names.
    pub fn read(tables: Vec<(&str, TableReader<'_>)>) -> Self {
        let built_in = BUILT_IN.iter().filter_map(|name| Profile::built_in(name));
        let mut profiles: BTreeMap<_, _> = built_in.map(|p| (p.name.clone(), Arc::new(p))).collect();
        let drafts: Vec<ProfileDraft<'_>> =
            tables.iter().map(|(name, reader)| ProfileDraft::read(name, reader)).collect();
        for (draft, (_, reader)) in drafts.iter().zip(tables) {
            if BUILT_IN.contains(&draft.name) {
                reader
                    .table_error("another name: this profile is built in, and other profiles can extend it with base");
            } else {
                let profile = draft.resolve(&drafts, &reader);
                profiles.insert(profile.name.clone(), Arc::new(profile));
            }
            reader.finish();
        }
        Self(profiles)
    }

    /// Reads an option that names a profile; the default is `lan`.
    pub fn read_profile(&self, reader: &TableReader<'_>, key: &'static str) -> Arc<Profile> {
        let name = reader.optional_or(key, "lan".to_owned());
        if let Some(profile) = self.0.get(&name) {
            return Arc::clone(profile);
        }
        reader.error(key, expected_one_of("a profile", &name, self.0.keys().map(String::as_str)));
        Arc::default()
    }
}

/// Returns the profile of a section between relays: the profile with `tune` and `nodelay`, unless it sets them. Both
/// ends of such a section are relays, so it can be tuned. Without `nodelay`, the first bytes of a session would wait
/// for the acknowledgement of OPEN.
pub(super) fn for_section(profile: Arc<Profile>) -> Arc<Profile> {
    let defaults = [Setting::Nodelay(true), Setting::Tune(true)];
    let missing: Vec<_> = defaults.into_iter().filter(|setting| !profile.has_setting(setting.key())).collect();
    if missing.is_empty() {
        return profile;
    }
    let mut completed = Profile::clone(&profile);
    missing.into_iter().for_each(|setting| completed.set(setting));
    Arc::new(completed)
}

impl<'a> ProfileDraft<'a> {
    fn read(name: &'a str, reader: &TableReader<'_>) -> Self {
        let base = reader.optional("base");
        let mut settings = Vec::new();
        for key in Setting::KEYS {
            let Some(ScalarText(text)) = reader.optional(key) else { continue };
            match Setting::read(key, &text) {
                Ok(setting) => {
                    if matches!(&setting, Setting::Congestion(Algorithm(name)) if name != Algorithm::AUTO) {
                        reader.add_congestion_name(key, &text);
                    }
                    settings.push(setting);
                }
                Err(expected) => reader.error(key, expected.unwrap_or_else(|| "a setting".to_owned())),
            }
        }
        Self { name, base, settings }
    }

    /// Returns the profile with the settings of all profiles that it is based on. An unknown base is reported only for
    /// the draft that names it, and a cycle only for drafts that are part of it.
    fn resolve(&self, drafts: &[ProfileDraft<'_>], reader: &TableReader<'_>) -> Profile {
        let mut chain = vec![self];
        let mut bottom = None;
        while let Some(base) = chain.last().and_then(|draft| draft.base.as_deref()) {
            bottom = Profile::built_in(base);
            if bottom.is_some() {
                break;
            }
            let Some(next) = drafts.iter().find(|draft| draft.name == base) else {
                if chain.len() == 1 {
                    let names = BUILT_IN.iter().copied().chain(drafts.iter().map(|draft| draft.name));
                    reader.error("base", expected_one_of("a profile", base, names));
                }
                break;
            };
            if chain.iter().any(|draft| draft.name == next.name) {
                if next.name == self.name {
                    reader.error("base", "a profile that is not itself based on this profile");
                }
                break;
            }
            chain.push(next);
        }
        let mut profile = bottom.unwrap_or_default();
        self.name.clone_into(&mut profile.name);
        for setting in chain.iter().rev().flat_map(|draft| &draft.settings) {
            profile.set(setting.clone());
        }
        profile
    }
}
