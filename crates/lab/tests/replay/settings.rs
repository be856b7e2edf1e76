//! What is replayed: settings from sensible to absurd, as a lab file has them.

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
