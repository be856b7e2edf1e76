//! The settings to replay, from typical to extreme, in the form of a lab file.

pub const TAIL_DROP: [&str; 4] = [
    "kind = 'tail-drop'\nlimit = '20pkt'",
    "kind = 'tail-drop'\nlimit = '1pkt'",
    "kind = 'tail-drop'\nlimit = '30000B'",
    "kind = 'tail-drop'\nlimit = '1499B'",
];

pub const RED: [&str; 8] = [
    "kind = 'red'\nlimit = '40pkt'\nmin = '5pkt'\nmax = '25pkt'\np = 0.05\nwq = 0.05",
    "kind = 'red'\nlimit = '64pkt'\nmin = '5pkt'\nmax = '15pkt'\np = 0.1\nwq = 0.02\ngentle = true",
    "kind = 'red'\nlimit = '64pkt'\nmin = '2pkt'\nmax = '10pkt'\np = 0.1\nwq = 0.02\necn = true",
    "kind = 'red'\nlimit = '64pkt'\nmin = '2pkt'\nmax = '10pkt'\np = 0.5\nwq = 0.1\necn = true\ngentle = true",
    "kind = 'red'\nlimit = '60000B'\nmin = '6000B'\nmax = '30000B'\np = 0.1\nwq = 0.05",
    "kind = 'red'\nlimit = '60000B'\nmin = '6000B'\nmax = '20000B'\np = 0.2\nwq = 0.05\necn = true\ngentle = true",
    "kind = 'red'\nlimit = '30pkt'\nmin = '1pkt'\nmax = '20pkt'\np = 1.0\nwq = 1.0",
    "kind = 'red'\nlimit = '100pkt'\nmin = '3pkt'\nmax = '9pkt'\np = 0.1",
];

/// `heavy` is empty, because the replay sets the sources.
pub const STATIC_PRIORITY: [&str; 4] = [
    "kind = 'static-priority'\nlimit = '40pkt'\nmin = '5pkt'\nmax = '25pkt'\np = 0.05\nwq = 0.05\nn = 4\nheavy = []",
    "kind = 'static-priority'\nlimit = '64pkt'\nmin = '2pkt'\nmax = '30pkt'\np = 0.1\nn = 10\nheavy = []\necn = true",
    "kind = 'static-priority'\nlimit = '30000B'\nmin = '3000B'\nmax = '20000B'\np = 0.2\nwq = 0.1\nn = 1.5\nheavy = []",
    "kind = 'static-priority'\nlimit = '64pkt'\nmin = '1pkt'\nmax = '50pkt'\np = 0.5\nwq = 1.0\nn = 10000\nheavy = []",
];

pub const DYNAMIC_PRIORITY: [&str; 5] = [
    "kind = 'dynamic-priority'\nlimit = '40pkt'\nmin = '5pkt'\nmax = '25pkt'\np = 0.05\nwq = 0.05\nn = 4\nrec_int = 10\nsta_int = 100\nhist_len = 10",
    "kind = 'dynamic-priority'\nlimit = '64pkt'\nmin = '2pkt'\nmax = '30pkt'\np = 0.1\nn = 10\nrec_int = 1\nsta_int = 1\nhist_len = 1\necn = true",
    "kind = 'dynamic-priority'\nlimit = '30000B'\nmin = '3000B'\nmax = '20000B'\np = 0.2\nwq = 0.1\nn = 1.5\nrec_int = 1\nsta_int = 3\nhist_len = 6",
    "kind = 'dynamic-priority'\nlimit = '64pkt'\nmin = '1pkt'\nmax = '50pkt'\np = 0.5\nwq = 1.0\nn = 10000\nrec_int = 2\nsta_int = 5\nhist_len = 1024",
    "kind = 'dynamic-priority'\nlimit = '64pkt'\nmin = '1pkt'\nmax = '40pkt'\np = 0.2\nwq = 0.1\nn = 5\nrec_int = 7\nsta_int = 2\nhist_len = 5",
];

pub const CODEL: [&str; 6] = [
    "kind = 'codel'\nlimit = '1000pkt'",
    "kind = 'codel'\nlimit = '50pkt'\ntarget = '1ms'\ninterval = '10ms'",
    "kind = 'codel'\nlimit = '1000pkt'\ntarget = '1ms'\ninterval = '10ms'\necn = true",
    "kind = 'codel'\nlimit = '100000B'\ntarget = '2ms'\ninterval = '20ms'\necn = true",
    "kind = 'codel'\nlimit = '1000pkt'\ntarget = '100us'\ninterval = '500us'",
    "kind = 'codel'\nlimit = '1000pkt'\ntarget = '0ms'\ninterval = '1ms'\necn = true",
];

pub const FQ_CODEL: [&str; 7] = [
    "kind = 'fq-codel'\nlimit = '10240pkt'",
    "kind = 'fq-codel'\nlimit = '60pkt'\ntarget = '1ms'\ninterval = '10ms'\nflows = 4\nquantum = '300B'",
    "kind = 'fq-codel'\nlimit = '1000pkt'\ntarget = '1ms'\ninterval = '10ms'\nflows = 16\necn = true",
    "kind = 'fq-codel'\nlimit = '40000B'\ntarget = '500us'\ninterval = '5ms'\nflows = 3\nquantum = '9000B'",
    "kind = 'fq-codel'\nlimit = '200pkt'\ntarget = '1ms'\ninterval = '5ms'\nflows = 1\necn = true",
    "kind = 'fq-codel'\nlimit = '500pkt'\ntarget = '100us'\ninterval = '500us'\nflows = 64\nquantum = '1B'",
    "kind = 'fq-codel'\nlimit = '130pkt'\ntarget = '0ms'\ninterval = '1ms'\nflows = 2\nquantum = '1514B'",
];

pub const LOSS: [&str; 4] = [
    "model = 'bernoulli'\np = 0.03\nat = 'AT'",
    "model = 'pattern'\nevery = 7\nlost = [0, 5]\nat = 'AT'",
    "model = 'gilbert-elliott'\nto_bad = 0.05\nto_good = 0.3\nat = 'AT'",
    "model = 'gilbert-elliott'\nto_bad = 0.1\nto_good = 0.2\np_good = 0.02\np_bad = 0.6\nat = 'AT'",
];
