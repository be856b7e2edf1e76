use super::*;

#[test]
fn built_ins_exist_and_are_ordered() {
    for name in BUILT_IN {
        let profile = Profile::built_in(name).unwrap();
        let positions: Vec<_> = profile.settings().iter().map(Setting::position).collect();
        assert!(positions.is_sorted(), "{name}: {positions:?}");
    }
    assert_eq!(Profile::built_in("none"), None);
}

#[test]
fn setting_a_key_again_replaces_it() {
    let mut profile = Profile::built_in("longhaul").unwrap();
    let count = profile.settings().len();
    profile.set(Setting::read("congestion", "cubic").unwrap());
    assert_eq!(profile.settings().len(), count);
    assert!(profile.settings().contains(&Setting::Congestion(Algorithm("cubic".into()))));
}

#[test]
fn compound_tcp_is_asked_only_where_it_is_in_use() {
    let profile = |settings: &[(&str, &str)]| {
        let mut profile = Profile::named("test");
        settings.iter().for_each(|(key, value)| profile.set(Setting::read(key, value).unwrap()));
        profile.compound_tcp()
    };
    let both = CompoundTcp { gamma: 12, auto_gamma: true };
    assert_eq!(profile(&[("congestion", "ctcp"), ("ctcp_gamma", "12"), ("ctcp_auto_gamma", "true")]), Some(both));
    assert_eq!(profile(&[("congestion", "cubic"), ("ctcp_gamma", "12")]), None);
    assert_eq!(profile(&[("congestion", "ctcp")]), None);
}

#[test]
fn tuning_begins_with_what_the_profile_leaves_open() {
    let opening = |settings: &[(&str, &str)]| {
        let mut profile = Profile::named("test");
        settings.iter().for_each(|(key, value)| profile.set(Setting::read(key, value).unwrap()));
        profile.opening().map(|setting| setting.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(opening(&[("tune", "false")]), ["tune = false"]);
    assert_eq!(
        opening(&[("tune", "true"), ("rto_min", "90ms")]),
        ["rto_min = 90ms", "tune = true", "notsent_lowat = 1MiB", "delack_max = 20ms"]
    );
}

#[test]
fn wrong_values_say_what_was_expected() {
    assert_eq!(Setting::read("rto_min", "5"), Err(Some(Span::EXPECTED)));
    assert_eq!(Setting::read("congestion", "a name too long for it"), Err(Some(Algorithm::EXPECTED)));
    assert_eq!(Setting::read("nagle", "true"), Err(None));
}
