/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What Compound TCP remembers of a connection, and what it takes the path for: its own round-trip time, and so how much of
 * the window waits in queues. Nothing of the kernel's but the widths of integers, as in ctcp.h, which has the windows.
 *
 * Windows are in packets. What needs parts of a packet is in 1/FRACTION of one.
 */
#ifndef EKIDEN_CTCP_PATH_H
#define EKIDEN_CTCP_PATH_H

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

/*
 * 1: slow start ends at a loss only, and the base RTT is the smallest of the connection, as in the draft. The laboratory
 * has such a control beside ours, for comparisons (crates/lab/kernel/congestion/ctcp_draft.bpf.c).
 */
#ifndef CTCP_AS_DRAFT
#define CTCP_AS_DRAFT 0
#endif

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
 * Old samples are forgotten, as paths change. Not while there is a queue, or else one that stands long enough would be
 * taken for the path.
 */
static __always_inline void ctcp_age_base(struct ctcp *c, const struct ctcp_round *round)
{
	if (CTCP_AS_DRAFT || c->queued >= c->gamma || round->now_ms - c->base_since_ms <= BASE_PERIOD_MS)
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
