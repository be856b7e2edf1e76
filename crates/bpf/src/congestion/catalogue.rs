//! The congestion controls that ekiden carries, one in a row, and a word on those of the kernel.

use super::CongestionError;

/// A congestion control that ekiden carries.
#[derive(Debug)]
pub struct Algorithm {
    /// The name it registers under, as `TCP_CONGESTION` takes it.
    pub name: &'static str,
    /// The purpose, in a line.
    pub about: &'static str,
    /// The publication that describes the algorithm.
    pub source: &'static str,
    pub(super) object: &'static [u8],
}

macro_rules! catalogue {
    ($($name:literal: $about:literal, $source:literal;)+) => {
        /// Every algorithm that ekiden carries.
        pub const CATALOGUE: &[Algorithm] = &[$(Algorithm {
            name: $name,
            about: $about,
            source: $source,
            object: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")),
        }),+];
    };
}

catalogue! {
    "ctcp": "Compound TCP: Reno plus a second window while no queue builds up",
        "Tan, Song, Zhang, Sridharan, IEEE INFOCOM 2006; draft-sridharan-tcpm-ctcp-02";
    "highspeed": "for windows of thousands of packets: larger windows grow faster and shrink less",
        "Floyd, RFC 3649";
    "hybla": "makes a long round trip as fast as one of 25 ms: for satellites",
        "Caini, Firrincieli, International Journal of Satellite Communications and Networking 22(5), 2004";
    "westwood": "Westwood+: Reno that sets the window after a loss from the measured bandwidth: for radio links",
        "Grieco, Mascolo, ACM SIGCOMM Computer Communication Review 34(2), 2004";
    "vegas": "keeps two to four packets of a connection queued: short queues, but yields to controls that fill queues",
        "Brakmo, Peterson, IEEE Journal on Selected Areas in Communications 13(8), 1995";
    "scalable": "recovers from a loss within 13 round trips, at any window",
        "Kelly, ACM SIGCOMM Computer Communication Review 33(2), 2003";
    "bic": "binary search for the window of the last loss; the predecessor of cubic",
        "Xu, Harfoush, Rhee, IEEE INFOCOM 2004";
    "cubicresume": "the kernel's cubic with careful resume: can start with the saved window of an earlier connection",
        "Kuhn, Stephan, Fairhurst, Secchi, Huitema, RFC 9959; Xu, Ha, Rhee, Goel, Eggert, RFC 9438";
}

/// The purposes of congestion controls that kernels contain.
const KERNEL_ALGORITHMS: &[(&str, &str)] = &[
    ("reno", "the standard: one packet more each round trip, half the window at a loss (RFC 5681)"),
    ("cubic", "grows by the time since the last loss, independent of the round trip (RFC 9438)"),
    ("bbr", "keeps to the bandwidth and the round trip that it measures; a loss does not slow it down"),
    ("dctcp", "for data centres whose switches mark early (RFC 8257)"),
    ("htcp", "grows faster as the time since the last loss increases"),
    ("illinois", "grows more slowly as the queue grows"),
];

/// The one of this name.
///
/// # Errors
/// [`CongestionError::Unknown`], with the one that was probably meant.
pub fn find(name: &str) -> Result<&'static Algorithm, CongestionError> {
    CATALOGUE.iter().find(|algorithm| algorithm.name == name).ok_or_else(|| {
        let nearest = CATALOGUE.iter().map(|algorithm| (edit_distance(algorithm.name, name), algorithm.name)).min();
        let meant = nearest.filter(|(distance, _)| *distance <= 2).map(|(_, name)| name);
        CongestionError::Unknown { name: name.to_owned(), meant }
    })
}

/// The purpose; empty for an unknown one.
#[must_use]
pub fn about(name: &str) -> &'static str {
    let ours = CATALOGUE.iter().find(|algorithm| algorithm.name == name).map(|algorithm| algorithm.about);
    let theirs = || KERNEL_ALGORITHMS.iter().find(|(known, _)| *known == name).map(|(_, about)| *about);
    ours.or_else(theirs).unwrap_or_default()
}

/// How many letters have to be changed, added or taken away (Levenshtein 1966).
fn edit_distance(from: &str, to: &str) -> usize {
    let to = to.as_bytes();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (at, letter) in from.bytes().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], at + 1);
        for (column, other) in to.iter().enumerate() {
            let changed = corner + usize::from(letter != *other);
            corner = row[column + 1];
            row[column + 1] = changed.min(row[column] + 1).min(corner + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_counts_changed_letters() {
        for (from, to, expected) in [("ctcp", "ctcp", 0), ("ctcp", "tcp", 1), ("vegas", "vages", 2), ("", "bic", 3)] {
            assert_eq!(edit_distance(from, to), expected, "{from} {to}");
        }
    }

    #[test]
    fn misspelt_names_get_a_suggestion_and_other_words_do_not() {
        let meant = |name| match find(name) {
            Err(CongestionError::Unknown { meant, .. }) => meant,
            other => panic!("{other:?}"),
        };
        assert_eq!((meant("ctpc"), meant("compound")), (Some("ctcp"), None));
    }

    /// TCP_CA_NAME_MAX is 16 with the NUL, and bpffs does not allow dots in names.
    #[test]
    fn algorithm_names_are_valid_for_the_kernel_and_bpffs() {
        for algorithm in CATALOGUE {
            let plain = algorithm.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
            assert!(plain && algorithm.name.len() < 16, "{}", algorithm.name);
        }
    }
}
