use super::*;

const SITES: &str = "version = 1
[[site]]
name = \"a\"
role = \"client\"
[[site]]
name = \"b\"
role = [\"relay\", \"possible\"]
address = \"127.0.0.1:1\"
[[site]]
name = \"c\"
role = \"server\"
";

fn mistakes(text: &str) -> Vec<String> {
    from_text("f", text).expect_err("it is wrong").0.iter().map(ToString::to_string).collect()
}

#[test]
fn a_file_says_what_is_known() {
    let text = format!(
        "sizes = [\"1MiB\", \"10kB\"]\n{SITES}[rtt.a]\nc = \"38.6ms\"\nb = \"10ms\"\n[rtt.b]\nc = \"20ms\"\na = \"10.5ms\"
        [usual]\nwindow = \"256KiB\"\n[[section]]\nbetween = [\"c\", \"b\"]\nloss = \"0.1%\"\nline = \"80Mbit/s\"\n"
    );
    let network = from_text("f", &text).unwrap().complete(&[]).unwrap();
    assert_eq!(network.sizes, [10_000, 1 << 20]);
    assert_eq!(network.traffic, [Traffic { client: 0, server: 2, weight: 1.0 }]);
    assert_eq!(network.matrix.get(2, 0).unwrap().rtt, Duration::from_micros(38_600));
    let section = network.traits_of(1, 2);
    assert_eq!((section.loss, section.line_rate, section.window), (0.001, Some(1e7), Some(256 << 10)));
    assert_eq!(network.traits_of(0, 1), network.default_traits);
}

#[test]
fn every_contradiction_is_told_with_its_place() {
    let text = format!(
        "{SITES}[rtt.a]\nb = \"10ms\"\nc = \"-3ms\"\na = \"1ms\"\nd = \"5ms\"\n[rtt.b]\na = \"30ms\"\nc = \"measured\"\n"
    );
    let told = mistakes(&text);
    for expected in [
        "f:14: rtt.a.c = \"-3ms\": expected a time above zero like \"31.8ms\", or \"measured\"",
        "f:15: rtt.a.a = \"a\": expected another site: this is the way from a site to itself",
        "f:16: rtt.a.d = \"d\": expected a site, one of a, b, c",
        "f:18: rtt.b.a = \"30ms\": expected \"10ms\", as rtt.a.b says: a round trip is the same from both ends, \
         and once is enough",
        "f:19: rtt.b.c = \"measured\": expected a round trip; or say at the top where this command runs, like \
         here = \"tokyo\"",
    ] {
        assert!(told.iter().any(|mistake| mistake == expected), "{expected}\nis missing in\n{}", told.join("\n"));
    }
}
