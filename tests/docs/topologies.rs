//! The machines of the pages, and the links between them. All addresses are for documentation (RFC 5737) or private;
//! all topologies share the names, and the machine `internet` stands for all other hosts.

use crate::machine::{Machine, SharedFiles};

/// The machines and links of one page.
pub struct Topology {
    pub page: &'static str,
    /// Links as `MACHINE INTERFACE ADDRESS - MACHINE INTERFACE ADDRESS`.
    links: &'static [&'static str],
    /// Routes as `MACHINE ROUTE`, in the syntax of ip-route(8).
    routes: &'static [&'static str],
    /// Machines with ekiden as a service.
    pub relays: &'static [&'static str],
    /// Scripts that run before the first block, each with its machine.
    prepared: &'static [(&'static str, &'static str)],
    /// Placeholders of public keys in the page, each with the machine that has the key.
    pub keys: &'static [(&'static str, &'static str)],
    /// The machine with the web server.
    web: &'static str,
    /// Conditions before the section "The way back": a machine, and a script that must succeed within the deadline.
    pub proofs: &'static [(&'static str, &'static str)],
}

/// Host names of the pages, for /etc/hosts.
const NAMES: &str = "\
203.0.113.80 example.com www.example.com files.example server.example
203.0.113.7 relay.example
203.0.113.9 hub.example
203.0.113.11 site2.example
";

/// Script of the machine that is example.com: a web server with and without TLS, and a large file. The machine also
/// forwards packets between other machines.
const WEB: &str = r#"
# On the way between others, too.
sysctl -qw net.ipv4.ip_forward=1
ip address add 203.0.113.80/32 dev lo
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=example.com \
    -addext basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:example.com,DNS:www.example.com,DNS:files.example -keyout "$PLACE/key" -out "$CURL_CA_BUNDLE"
mkdir "$PLACE/www" "$PLACE/tmp"
echo 'an example' > "$PLACE/www/index.html"
head -c 8000000 /dev/zero > "$PLACE/www/big.iso"
cat > "$PLACE/nginx.conf" <<END
user root;
pid $PLACE/pid;
error_log $PLACE/errors;
events {}
http {
    access_log $PLACE/access;
    client_body_temp_path $PLACE/tmp/1;
    proxy_temp_path $PLACE/tmp/2;
    fastcgi_temp_path $PLACE/tmp/3;
    uwsgi_temp_path $PLACE/tmp/4;
    scgi_temp_path $PLACE/tmp/5;
    server {
        listen 80;
        listen 443 ssl;
        ssl_certificate $CURL_CA_BUNDLE;
        ssl_certificate_key $PLACE/key;
        root $PLACE/www;
    }
}
END
nginx -e "$PLACE/errors" -c "$PLACE/nginx.conf"
"#;

/// Script of a router's firewall: the tables of Debian's /etc/nftables.conf, which drop packets to the router itself.
const FIREWALL: &str = r#"
nft -f - <<'END'
table inet filter {
    chain input {
        type filter hook input priority filter; policy drop;
        ct state established,related accept
        iif lo accept
        meta l4proto { icmp, ipv6-icmp } accept
    }
    chain forward {
        type filter hook forward priority filter; policy accept;
    }
    chain output {
        type filter hook output priority filter; policy accept;
    }
}
END
"#;

pub const TOPOLOGIES: &[Topology] = &[
    Topology {
        page: "docs/quick-start.md",
        links: &[
            "you eth0 198.51.100.2/24 - internet you 198.51.100.1/24",
            "vps eth0 203.0.113.7/28 - internet vps 203.0.113.1/28",
        ],
        routes: &["you default via 198.51.100.1", "vps default via 203.0.113.1"],
        relays: &[],
        prepared: &[],
        keys: &[("PUBLIC-KEY-OF-YOUR-MACHINE", "you"), ("PUBLIC-KEY-OF-THE-RELAY", "vps")],
        web: "internet",
        proofs: &[("you", "grep 'path=.*relay.example' /run/ekiden.log")],
    },
    Topology {
        page: "docs/recipes/home-relay.md",
        links: &[
            "laptop eth0 192.168.1.10/24 - home lan0 192.168.1.2/24",
            "home wan0 198.51.100.2/24 - internet home 198.51.100.1/24",
            "middle eth0 203.0.113.7/28 - internet middle 203.0.113.1/28",
        ],
        routes: &["home default via 198.51.100.1", "middle default via 203.0.113.1"],
        relays: &["home", "middle"],
        prepared: &[],
        keys: &[("PUBLIC-KEY-OF-THE-HOME-RELAY", "home"), ("PUBLIC-KEY-OF-THE-RELAY-IN-THE-MIDDLE", "middle")],
        web: "internet",
        proofs: &[
            ("home", "grep path=by-middle /run/ekiden.log"),
            // The page has revoked the key of the home relay.
            ("laptop", "! curl -s --proxy socks5h://192.168.1.2:1080 https://example.com/"),
        ],
    },
    Topology {
        page: "docs/recipes/middle-relay.md",
        links: &[
            "laptop eth0 198.51.100.2/24 - internet laptop 198.51.100.1/24",
            "relay eth0 203.0.113.7/28 - internet relay 203.0.113.1/28",
        ],
        routes: &["laptop default via 198.51.100.1", "relay default via 203.0.113.1"],
        relays: &["relay"],
        prepared: &[],
        keys: &[],
        web: "internet",
        proofs: &[("relay", "grep 'client=198.51.100.2.*target=example.com:443' /run/ekiden.log")],
    },
    Topology {
        page: "docs/recipes/transparent-pair.md",
        links: &[
            "client eth0 10.1.0.10/16 - box1 lan0 10.1.0.1/16",
            "box1 wan0 192.0.2.1/24 - box2 wan0 192.0.2.2/24",
            "box2 lan0 10.2.0.1/16 - server eth0 10.2.0.20/16",
        ],
        routes: &[
            "client default via 10.1.0.1",
            "server default via 10.2.0.1",
            "box1 10.2.0.0/16 via 192.0.2.2",
            "box2 10.1.0.0/16 via 192.0.2.1",
        ],
        relays: &["box1", "box2"],
        prepared: &[
            ("box1", FIREWALL),
            ("box1", "sysctl -qw net.ipv4.ip_forward=0"),
            ("box2", FIREWALL),
            ("box2", "sysctl -qw net.ipv4.ip_forward=1"),
        ],
        keys: &[],
        web: "server",
        proofs: &[
            ("box1", "grep 'listener=from-clients.*target=10.2.0.20:80.*end=finished' /run/ekiden.log"),
            ("box2", "grep 'listener=from-line.*client=10.1.0.10:.*target=10.2.0.20:80.*end=finished' /run/ekiden.log"),
        ],
    },
    Topology {
        page: "docs/recipes/satellite.md",
        links: &[
            "laptop eth0 192.168.1.10/24 - dish lan0 192.168.1.2/24",
            "dish sat0 198.51.100.2/24 - internet dish 198.51.100.1/24",
            "hub eth0 203.0.113.9/28 - internet hub 203.0.113.1/28",
        ],
        routes: &["dish default via 198.51.100.1", "hub default via 203.0.113.1"],
        relays: &["dish", "hub"],
        prepared: &[],
        keys: &[("PUBLIC-KEY-OF-THE-DISH", "dish"), ("PUBLIC-KEY-OF-THE-HUB", "hub")],
        web: "internet",
        proofs: &[("dish", "grep 'path=over-the-satellite' /run/ekiden.log")],
    },
];

impl Topology {
    /// Starts and links the machines; `None` without the permission to create them.
    pub fn start(&self, shared: &SharedFiles) -> Option<Vec<Machine>> {
        let mut machines: Vec<Machine> = Vec::new();
        for link in self.links {
            let [here, there] = ends(link);
            for (name, _, _) in [here, there] {
                if machines.iter().all(|machine| machine.name != name) {
                    machines.push(Machine::start(name, shared)?);
                }
            }
            let [a, b] =
                [here.0, there.0].map(|name| machines.iter().position(|machine| machine.name == name).unwrap());
            let [a, b] = machines.get_disjoint_mut([a, b]).expect("two machines");
            a.link((here.1, here.2), b, (there.1, there.2));
        }
        for route in self.routes {
            let (name, route) = route.split_once(' ').expect("a machine and a route");
            machine_named(&mut machines, name).run(&format!("ip route add {route}"));
        }
        machine_named(&mut machines, self.web).run(WEB);
        for (name, script) in self.prepared {
            machine_named(&mut machines, name).run(script);
        }
        Some(machines)
    }
}

/// Returns the files that the machines of a topology share.
pub fn shared_files() -> SharedFiles {
    SharedFiles::new(NAMES)
}

pub fn machine_named<'a>(machines: &'a mut [Machine], name: &str) -> &'a mut Machine {
    machines.iter_mut().find(|machine| machine.name == name).unwrap_or_else(|| panic!("no machine has the name {name}"))
}

/// Splits a link into its two ends: machine, interface, address.
fn ends(link: &str) -> [(&str, &str, &str); 2] {
    let (here, there) = link.split_once(" - ").expect("two ends");
    [here, there].map(|end| {
        let mut words = end.split(' ');
        let mut next = || words.next().expect("a machine, an interface, an address");
        (next(), next(), next())
    })
}
