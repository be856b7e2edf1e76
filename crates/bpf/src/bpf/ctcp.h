/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The arithmetic of Compound TCP, without anything of the kernel's but the widths of integers: functions of a connection's
 * state and of what was measured. ctcp.bpf.c says where the algorithm is from, how ours differs, and calls them.
 *
 * ctcp_path.h has the state and what is known of the path.
 */
#ifndef EKIDEN_CTCP_H
#define EKIDEN_CTCP_H

#include "ctcp_path.h"

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

/*
 * Slow start has filled the path when gamma packets wait. It doubles the window in a round trip, so what is measured now
 * was sent when the window was half of this. That half stays; the other becomes delay window, which will go as far as it
 * is too much. Returns whether slow start is over.
 */
static __always_inline bool ctcp_end_slow_start(struct ctcp *c)
{
	__u32 half = c->cwnd / 2;
	__u32 rtt_us = c->group_us;

	if (CTCP_AS_DRAFT || c->group < GROUP)
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
