/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The state of Compound TCP for one connection, and the estimate of its path: the RTT with empty queues, and from it the
 * number of packets in queues. Without types of the kernel except for integers. ctcp.h has the windows.
 *
 * Windows are in packets, fractions in 1/FRACTION of a packet.
 */
#ifndef EKIDEN_CTCP_PATH_H
#define EKIDEN_CTCP_PATH_H

#define FRACTION 256

#define GAMMA 30      /* packets in the queue that count as congestion; the upper bound of a tuned gamma */
#define GAMMA_LOW 5   /* the lower bound of a tuned gamma */
#define LOW_WINDOW 38 /* below this window: Reno */

#define ENOUGH_SAMPLES 3 /* at least one of them is not of a delayed acknowledgement */

#define GROUP 8 /* samples of slow start of which the smallest counts */

#define BASE_PERIOD_MS 300000 /* the base RTT is the smallest of this period and of the previous one */
#define STUCK_MS 10000
#define STUCK_ROUNDS 64

#define NONE 0xffffffff

/*
 * 1: slow start ends only at a loss, and the base RTT is the smallest of the connection, as in the draft. The laboratory has
 * this variant for comparisons (crates/lab/kernel/congestion/ctcp_draft.bpf.c).
 */
#ifndef CTCP_AS_DRAFT
#define CTCP_AS_DRAFT 0
#endif

struct ctcp {
	__u32 cwnd;        /* the loss window */
	__u32 dwnd;        /* the delay window */
	__u32 cwnd_part;   /* fraction of the next packet of cwnd, in 1/window */
	__u32 dwnd_part;   /* fraction of the next packet of dwnd, in 1/(window * FRACTION) */
	__u32 step;        /* growth of dwnd in this round, in 1/FRACTION */
	__u32 prior_cwnd;  /* before the last reduction */
	__u32 prior_dwnd;
	__u32 gamma;       /* in 1/FRACTION */
	__u32 settling;    /* not 0: the samples of this round are of packets from before the last reduction */
	__u32 queued;      /* packets in the queue in the last round, in 1/FRACTION */
	__u32 reno_queued; /* the same for the loss window alone, in 1/FRACTION; or NONE */
	__u32 base_us;     /* the smallest RTT of this period, or NONE */
	__u32 base_before_us; /* the smallest RTT of the previous period, or NONE */
	__u32 base_since_ms;
	__u32 group;         /* samples in the current group of slow start */
	__u32 group_us;      /* the smallest of them, or NONE */
	/* A queue that remains without a delay window: see ctcp_doubt_base. */
	__u32 stuck_since_ms;
	__u32 stuck_rounds;
	__u32 stuck_window;
	__u32 stuck_low_us;
	__u32 stuck_high_us;
};

/* The measurements of a round trip. */
struct ctcp_round {
	__u32 rtt_us; /* the smallest sample */
	__u32 samples;
	__u32 used;   /* the part of the window that was in use, in packets */
	__u32 now_ms; /* of any clock; wraps around */
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

/* Returns how much of a window is in queues, in 1/FRACTION, for an RTT of `rtt_us` on a path of `base_us`. */
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
 * Discards old samples, because paths change. Not while there is a queue: a queue of that duration would become part of
 * the base RTT.
 */
static __always_inline void ctcp_age_base(struct ctcp *c, const struct ctcp_round *round)
{
	if (CTCP_AS_DRAFT || c->queued >= c->gamma || round->now_ms - c->base_since_ms <= BASE_PERIOD_MS)
		return;
	c->base_before_us = c->base_us;
	c->base_us = round->rtt_us;
	c->base_since_ms = round->now_ms;
}

/* Estimates the queue at the end of a round trip. Returns false with too few samples. */
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
 * The delay window is empty and there is still a queue. Either it is of other connections, and the window has to grow as in
 * Reno; or the path has become longer and the base RTT is outdated. The path has become longer if for STUCK_MS and
 * STUCK_ROUNDS nothing was lost and the RTT stayed constant (within 1/32) although the window grew: with a queue of its own
 * packets, the RTT would grow with the window, and it grew by less than a quarter of that.
 */
static __always_inline void ctcp_doubt_base(struct ctcp *c, const struct ctcp_round *round)
{
	__u32 window = ctcp_window(c);

	if (CTCP_AS_DRAFT)
		return;
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

#endif
