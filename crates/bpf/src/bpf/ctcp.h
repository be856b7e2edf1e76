/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The arithmetic of Compound TCP, without anything of the kernel's but the widths of integers: functions of a connection's
 * state and of what was measured. ctcp.bpf.c says where the algorithm is from, how ours differs, and calls them.
 *
 * Windows are in packets. What needs parts of a packet is in 1/FRACTION of one.
 */
#ifndef EKIDEN_CTCP_H
#define EKIDEN_CTCP_H

#define FRACTION 256

#define GAMMA 30      /* packets in the queue that count as congestion; where gamma is tuned, its upper bound */
#define GAMMA_LOW 5   /* its lower bound */
#define LOW_WINDOW 38 /* below this window: Reno */

#define ENOUGH_SAMPLES 3 /* then one of them was not of a delayed acknowledgement */

#define GROUP 8 /* samples of slow start whose smallest is believed */

#define BASE_PERIOD_MS 300000 /* the base RTT is the smallest of such a period and of the one before */
#define STUCK_MS 10000
#define STUCK_ROUNDS 64

#define NONE 0xffffffff

struct ctcp {
	__u32 cwnd;        /* the loss window */
	__u32 dwnd;        /* the delay window */
	__u32 cwnd_part;   /* what cwnd has gained of its next packet, in 1/window */
	__u32 dwnd_part;   /* what dwnd has gained of its next packet, in 1/(window * FRACTION) */
	__u32 step;        /* what dwnd gains in this round, in 1/FRACTION */
	__u32 prior_cwnd;  /* before the last reduction */
	__u32 prior_dwnd;
	__u32 gamma;       /* in 1/FRACTION */
	__u32 settling;    /* not 0: the samples of this round are of packets that were sent before the last change */
	__u32 queued;      /* what the last round had in the queue, in 1/FRACTION */
	__u32 reno_queued; /* what the loss window alone had there, in 1/FRACTION; or NONE */
	__u32 base_us;     /* the smallest RTT of this period, or NONE */
	__u32 base_before_us; /* and of the one before */
	__u32 base_since_ms;
	__u32 group;         /* how many samples since slow start was last judged */
	__u32 group_us;      /* and the smallest of them, or NONE */
	/* How long there has been a queue that does not go away without a delay window: see ctcp_doubt_base. */
	__u32 stuck_since_ms;
	__u32 stuck_rounds;
	__u32 stuck_window;
	__u32 stuck_low_us;
	__u32 stuck_high_us;
};

/* What a round trip has shown. */
struct ctcp_round {
	__u32 rtt_us; /* the smallest sample */
	__u32 samples;
	__u32 used;   /* packets of the window that were in use */
	__u32 now_ms; /* of any clock; goes round */
};

static __always_inline __u32 ctcp_window(const struct ctcp *c)
{
	return c->cwnd + c->dwnd;
}

static __always_inline __u32 ctcp_base_us(const struct ctcp *c)
{
	return c->base_us < c->base_before_us ? c->base_us : c->base_before_us;
}

static __always_inline void ctcp_forget_path(struct ctcp *c)
{
	c->base_us = NONE;
	c->base_before_us = NONE;
	c->reno_queued = NONE;
	c->stuck_rounds = 0;
	c->gamma = GAMMA * FRACTION;
	c->group = 0;
	c->group_us = NONE;
}

static __always_inline void ctcp_start(struct ctcp *c, __u32 window)
{
	c->cwnd = window;
	c->dwnd = 0;
	ctcp_forget_path(c);
}

/* A fixed gamma, in packets. 0 is the usual one. */
static __always_inline void ctcp_fix_gamma(struct ctcp *c, __u32 gamma)
{
	c->gamma = (gamma ? gamma : GAMMA) * FRACTION;
}

/*
 * The kernel has moved the sum of the windows: after idling, in slow start, for another packet size. What is missing is
 * taken from the delay window first. In slow start there is no delay window.
 */
static __always_inline void ctcp_follow(struct ctcp *c, __u32 window, bool slow_start)
{
	if (slow_start) {
		c->cwnd = window;
		c->step = 0;
	} else if (c->cwnd > window) {
		c->cwnd = window;
	}
	c->dwnd = window - c->cwnd;
}

/* Adds `gain` to `part`, which counts in 1/unit packets; returns the whole packets and keeps the rest. */
static __always_inline __u32 ctcp_carry(__u32 *part, __u64 gain, __u64 unit)
{
	__u64 sum = *part + gain;

	*part = sum % unit;
	return sum / unit;
}

/*
 * `acked` packets arrived. The loss window grows by a packet in a round trip, which is 1/window (not 1/cwnd) for each.
 * The delay window gets its share of this round's step with each, and not all of it at once: that would be a burst.
 */
static __always_inline void ctcp_grow(struct ctcp *c, __u32 acked)
{
	__u32 window = ctcp_window(c);

	if (!window)
		return;
	c->cwnd += ctcp_carry(&c->cwnd_part, acked, window);
	c->dwnd += ctcp_carry(&c->dwnd_part, (__u64)acked * c->step, (__u64)window * FRACTION);
}

/*
 * The square root of a number below 2^63, digit by digit. Masks and no branches: the verifier would follow both ways of
 * each digit, which is 2^32 ways.
 */
static __always_inline __u64 ctcp_root(__u64 square)
{
	__u64 root = 0;

	for (int shift = 62; shift >= 0; shift -= 2) {
		__u64 bit = 1ULL << shift;
		__s64 rest = square - (root + bit);
		__u64 fits = ~(rest >> 63);

		square -= (root + bit) & fits;
		root = (root >> 1) + (bit & fits);
	}
	return root;
}

/* alpha * window^k - 1 with alpha = 1/8, k = 3/4, not less than 0, in 1/FRACTION: what the loss window does not gain. */
static __always_inline __u32 ctcp_step(__u32 window)
{
	__u64 root = ctcp_root((__u64)window << 32); /* 2^16 window^(1/2) */
	__u64 power = ctcp_root(window * root);      /* 2^8 window^(3/4) */
	__u64 gain = power / 8;

	return gain > FRACTION ? gain - FRACTION : 0;
}

/* How much of a window waits in a queue if its packets take `rtt_us` instead of the path's own time, in 1/FRACTION. */
static __always_inline __u32 ctcp_queued(__u32 window, __u32 base_us, __u32 rtt_us)
{
	if (rtt_us <= base_us)
		return 0;
	return (__u64)window * FRACTION * (rtt_us - base_us) / rtt_us;
}

static __always_inline void ctcp_sample(struct ctcp *c, __u32 rtt_us)
{
	if (rtt_us < c->base_us)
		c->base_us = rtt_us;
	if (rtt_us < c->group_us)
		c->group_us = rtt_us;
	c->group++;
}

/*
 * Slow start has filled the path when gamma packets wait. It doubles the window in a round trip, so what is measured now
 * was sent when the window was half of this. That half stays; the other becomes delay window, which will go as far as it
 * is too much. Returns whether slow start is over.
 */
static __always_inline bool ctcp_end_slow_start(struct ctcp *c)
{
	__u32 half = c->cwnd / 2;
	__u32 rtt_us = c->group_us;

	if (c->group < GROUP)
		return false;
	c->group = 0;
	c->group_us = NONE;
	if (half < LOW_WINDOW || ctcp_queued(half, ctcp_base_us(c), rtt_us) < c->gamma)
		return false;
	c->cwnd -= half;
	c->dwnd = half;
	c->settling = true;
	return true;
}

/*
 * Old samples are forgotten, as paths change. Not while there is a queue, or else one that stands long enough would be
 * taken for the path.
 */
static __always_inline void ctcp_age_base(struct ctcp *c, const struct ctcp_round *round)
{
	if (c->queued >= c->gamma || round->now_ms - c->base_since_ms <= BASE_PERIOD_MS)
		return;
	c->base_before_us = c->base_us;
	c->base_us = round->rtt_us;
	c->base_since_ms = round->now_ms;
}

/* The end of a round trip: how much of it was waiting? False where the samples do not tell. */
static __always_inline bool ctcp_measure(struct ctcp *c, const struct ctcp_round *round)
{
	__u32 base_us = ctcp_base_us(c);

	if (round->samples < ENOUGH_SAMPLES)
		return false;
	c->queued = ctcp_queued(round->used, base_us, round->rtt_us);
	c->reno_queued = ctcp_queued(c->cwnd < round->used ? c->cwnd : round->used, base_us, round->rtt_us);
	ctcp_age_base(c, round);
	return true;
}

/*
 * The delay window is empty and the queue is there all the same. It may be others', and then Reno is all we may be; or
 * the path has become longer, and then the base RTT will be wrong for as long as it is remembered. The path it is, if for
 * STUCK_MS and STUCK_ROUNDS nothing was lost and the RTT stood still (within a 32nd) although the window grew: in a queue
 * that is our own the RTT grows with the window, here it grew by less than a quarter of that.
 */
static __always_inline void ctcp_doubt_base(struct ctcp *c, const struct ctcp_round *round)
{
	__u32 window = ctcp_window(c);

	if (!c->stuck_rounds) {
		c->stuck_since_ms = round->now_ms;
		c->stuck_window = window;
		c->stuck_low_us = round->rtt_us;
		c->stuck_high_us = round->rtt_us;
	}
	if (round->rtt_us < c->stuck_low_us)
		c->stuck_low_us = round->rtt_us;
	if (round->rtt_us > c->stuck_high_us)
		c->stuck_high_us = round->rtt_us;
	c->stuck_rounds++;
	if (c->stuck_rounds <= STUCK_ROUNDS || round->now_ms - c->stuck_since_ms <= STUCK_MS)
		return;
	__u64 spread_us = c->stuck_high_us - c->stuck_low_us;
	__u64 grown = window > c->stuck_window ? window - c->stuck_window : 0;
	bool still = spread_us * 32 <= c->stuck_low_us;
	bool apart = 4 * spread_us * c->stuck_window < grown * c->stuck_low_us;

	c->stuck_rounds = 0;
	if (still && apart) {
		c->base_us = c->stuck_low_us;
		c->base_before_us = NONE;
	}
}

/* The end of a round trip in congestion avoidance, as `ctcp_measure` saw it: what the delay window does next. */
static __always_inline void ctcp_adjust(struct ctcp *c, const struct ctcp_round *round)
{
	__u32 window = ctcp_window(c);

	if (window < LOW_WINDOW) {
		ctcp_follow(c, window, true);
		return;
	}
	if (c->queued < c->gamma) {
		c->step = ctcp_step(window);
		c->stuck_rounds = 0;
		return;
	}
	__u32 yield = c->queued / FRACTION; /* eta = 1 */

	c->settling = c->dwnd > 0;
	c->dwnd -= yield < c->dwnd ? yield : c->dwnd;
	if (c->dwnd)
		c->stuck_rounds = 0;
	else
		ctcp_doubt_base(c, round);
}

/* The end of a round trip. After one in which the delay window yielded comes one that still shows the old queue. */
static __always_inline void ctcp_end_round(struct ctcp *c, const struct ctcp_round *round, bool slow_start)
{
	bool settling = c->settling;

	c->settling = false;
	c->step = 0;
	if (ctcp_measure(c, round) && !slow_start && !settling)
		ctcp_adjust(c, round);
}

/*
 * Recovery is over. If nothing waited in its round trip the delay window grows in the next one: a round that is only
 * watched before it would be one more than the loss costs. A queue, though, is what the reduction may have been for.
 */
static __always_inline void ctcp_end_recovery(struct ctcp *c, const struct ctcp_round *round)
{
	if (ctcp_measure(c, round) && ctcp_window(c) >= LOW_WINDOW && c->queued < c->gamma)
		c->step = ctcp_step(ctcp_window(c));
}

/* A loss or a mark: both windows are halved (beta = 1/2). Returns their sum. */
static __always_inline __u32 ctcp_reduce(struct ctcp *c)
{
	c->prior_cwnd = c->cwnd;
	c->prior_dwnd = c->dwnd;
	c->cwnd = c->cwnd < 4 ? 2 : c->cwnd / 2;
	c->dwnd /= 2;
	c->cwnd_part = 0;
	c->dwnd_part = 0;
	c->step = 0;
	c->settling = false;
	c->stuck_rounds = 0;
	return ctcp_window(c);
}

/*
 * CTCP-TUBE: at a loss gamma moves by lambda = 1/4 towards 3/4 of what a Reno connection of this loss window had in the
 * queue. Where many share a short queue, 30 packets of each would never fit into it.
 */
static __always_inline void ctcp_tune_gamma(struct ctcp *c)
{
	if (c->reno_queued == NONE)
		return;
	__u32 gamma = (3 * c->gamma + c->reno_queued / 4 * 3) / 4;

	c->reno_queued = NONE;
	c->gamma = gamma < GAMMA_LOW * FRACTION ? GAMMA_LOW * FRACTION : gamma;
	if (c->gamma > GAMMA * FRACTION)
		c->gamma = GAMMA * FRACTION;
}

/* Nothing was lost after all. */
static __always_inline __u32 ctcp_undo(struct ctcp *c, __u32 window)
{
	__u32 prior = c->prior_cwnd + c->prior_dwnd;

	c->cwnd = c->prior_cwnd;
	c->dwnd = c->prior_dwnd;
	if (window > prior)
		c->cwnd += window - prior;
	return ctcp_window(c);
}

/* The retransmission timer expired: the path may be another one. */
static __always_inline void ctcp_timeout(struct ctcp *c, __u32 window)
{
	ctcp_forget_path(c);
	ctcp_follow(c, window, true);
}

#endif
