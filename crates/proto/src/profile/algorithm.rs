//! Congestion controls by their names, and what is nearest to one that a kernel lacks.

use std::fmt;
use std::str::FromStr;

/// A congestion control's name, as `TCP_CONGESTION` takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Algorithm(pub String);

impl Algorithm {
    /// Those of Linux 6.18 (net/ipv4/Kconfig): built in, or modules that a kernel may have.
    pub const LINUX: [&str; 17] = [
        "bbr",
        "bic",
        "cdg",
        "cubic",
        "dctcp",
        "highspeed",
        "htcp",
        "hybla",
        "illinois",
        "lp",
        "nv",
        "reno",
        "scalable",
        "vegas",
        "veno",
        "westwood",
        "yeah",
    ];

    /// What comes nearest to it of those that kernels bring, the nearest first; nothing where nobody here knows. Cubic
    /// is a loss-based control for fast long paths as these are; bbr does not take the losses of a bad link for
    /// congestion, as hybla and westwood do not, and leaves queues short, as vegas does.
    #[must_use]
    pub fn fallbacks(&self) -> &'static [&'static str] {
        match self.0.as_str() {
            "ctcp" | "highspeed" | "scalable" | "bic" => &["cubic"],
            "hybla" | "westwood" | "vegas" => &["bbr", "cubic"],
            _ => &[],
        }
    }
}

impl FromStr for Algorithm {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        // TCP_CA_NAME_MAX is 16 with the terminating NUL.
        let known = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        ((1..16).contains(&text.len()) && text.bytes().all(known)).then(|| Self(text.to_owned())).ok_or(())
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
