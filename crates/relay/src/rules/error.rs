//! Errors of rule changes, and their remedies.

/// Why the rules could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// A program is missing.
    #[error("{program} is not installed: apt-get install {package}")]
    NotInstalled {
        /// The program that was called.
        program: &'static str,
        /// The Debian package of the program.
        package: &'static str,
    },
    /// The process lacks the privilege.
    #[error(
        "{program}: {message}: needs CAP_NET_ADMIN: run as root, or AmbientCapabilities=CAP_NET_ADMIN in the systemd unit"
    )]
    NotPermitted {
        /// The program that failed.
        program: &'static str,
        /// The message of the program.
        message: String,
    },
    /// The kernel lacks a feature.
    #[error("{program}: {message}: this kernel lacks a feature: modprobe {module}, or use a kernel with {option}")]
    Kernel {
        /// The program that failed.
        program: &'static str,
        /// The message of the program.
        message: String,
        /// The kernel module to load.
        module: &'static str,
        /// The kernel configuration option that is required.
        option: &'static str,
    },
    /// Another process has the instance.
    #[error("instance {instance} belongs to ekiden with pid {pid}: set [transparent] instance = {free} here")]
    Owned {
        /// The number of the instance.
        instance: u8,
        /// The process that owns the rules.
        pid: u32,
        /// The number of a free instance.
        free: u8,
    },
    /// Any other error of a program.
    #[error("{program}: {message}")]
    Failed {
        /// The program that was called.
        program: &'static str,
        /// The message of the program.
        message: String,
    },
}

/// A keyword in a rule, with the kernel module and the kernel configuration option that it needs.
const NEEDS: [(&str, &str, &str); 8] = [
    ("tproxy", "nft_tproxy", "CONFIG_NFT_TPROXY"),
    ("socket", "nft_socket", "CONFIG_NFT_SOCKET"),
    ("fib", "nft_fib_inet", "CONFIG_NFT_FIB_INET"),
    ("reject", "nft_reject_inet", "CONFIG_NFT_REJECT_INET"),
    ("redirect", "nft_redir", "CONFIG_NFT_REDIR"),
    ("dnat", "nft_nat", "CONFIG_NFT_NAT"),
    ("notrack", "nft_ct", "CONFIG_NFT_CT"),
    ("type nat", "nft_chain_nat", "CONFIG_NFT_NAT"),
];

impl RulesError {
    pub(super) fn not_installed(program: &'static str) -> Self {
        let package = match program {
            "nft" => "nftables",
            "ip" => "iproute2",
            _ => "iptables",
        };
        Self::NotInstalled { program, package }
    }

    /// Returns the error for the message of a failed program.
    pub(super) fn failed(program: &'static str, message: &str) -> Self {
        let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        // nft(8) quotes the rule and underlines the faulty part.
        let summary = lines.iter().take(2).copied().collect::<Vec<_>>().join(": ");
        if ["Operation not permitted", "Permission denied", "must be root"].iter().any(|text| message.contains(text)) {
            return Self::NotPermitted { program, message: lines.first().copied().unwrap_or_default().to_owned() };
        }
        let lacking = program == "nft" && ["No such file", "not supported"].iter().any(|text| message.contains(text));
        let quoted = lines.get(1).copied().unwrap_or_default();
        match NEEDS.iter().find(|(word, ..)| lacking && underlined(message, quoted).contains(word)) {
            Some((_, module, option)) => Self::Kernel { program, message: summary, module, option },
            None => Self::Failed { program, message: summary },
        }
    }
}

/// Returns the part of a quoted line that is underlined by `^^^^` in the next line.
fn underlined<'a>(message: &'a str, quoted: &'a str) -> &'a str {
    let mut lines = message.lines().skip_while(|line| line.trim() != quoted);
    let (Some(line), Some(marks)) = (lines.next(), lines.next()) else { return quoted };
    let (first, last) = (marks.find('^').unwrap_or(0), marks.rfind('^').map_or(line.len(), |last| last + 1));
    line.get(first..last.min(line.len())).unwrap_or(quoted)
}
