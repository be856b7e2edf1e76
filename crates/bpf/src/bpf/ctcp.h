/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The arithmetic of Compound TCP: functions of the state of a connection and of measurements, without types of the kernel
 * except for integers. ctcp.bpf.c has the sources of the algorithm and the differences, and calls these functions.
 *
 * ctcp_path.h has the state and the measurements of the path.
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

/* Sets a fixed gamma, in packets; 0 for the default. */
static __always_inline void ctcp_fix_gamma(struct ctcp *c, __u32 gamma)
{
	c->gamma = (gamma ? gamma : GAMMA) * FRACTION;
}

/*
 * The kernel has changed the sum of the windows: after an idle time, in slow start, or for another packet size. A reduction
 * is taken from the delay window first. In slow start there is no delay window.
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

/* Adds `gain` to `part`, which is in 1/unit packets. Returns the whole packets; the remainder stays in `part`. */
static __always_inline __u32 ctcp_carry(__u32 *part, __u64 gain, __u64 unit)
{
	__u64 sum = *part + gain;

	*part = sum % unit;
	return sum / unit;
}

/*
 * `acked` packets were delivered. The loss window grows by one packet per round trip, which is 1/window (not 1/cwnd) per
 * packet. The delay window gets its share of the step of this round with each, because the whole step at once would be a
 * burst.
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

/* alpha * window^k - 1 with alpha = 1/8, k = 3/4, at least 0, in 1/FRACTION: the growth beyond that of the loss window. */
static __always_inline __u32 ctcp_step(__u32 window)
{
	__u64 root = ctcp_root((__u64)window << 32); /* 2^16 window^(1/2) */
	__u64 power = ctcp_root(window * root);      /* 2^8 window^(3/4) */
	__u64 gain = power / 8;

	return gain > FRACTION ? gain - FRACTION : 0;
}

/*
 * Slow start has filled the path when gamma packets are in the queue. It doubles the window per round trip, so the current
 * samples are of packets that were sent with half of this window. That half stays; the other half becomes delay window,
 * which shrinks as far as necessary. Returns whether slow start has ended.
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

/* Adjusts the delay window at the end of a round trip in congestion avoidance, after `ctcp_measure`. */
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

/* The end of a round trip. The round after a reduction of the delay window is ignored: it still shows the former queue. */
static __always_inline void ctcp_end_round(struct ctcp *c, const struct ctcp_round *round, bool slow_start)
{
	bool settling = c->settling;

	c->settling = false;
	c->step = 0;
	if (ctcp_measure(c, round) && !slow_start && !settling)
		ctcp_adjust(c, round);
}

/*
 * The end of a recovery. If its round trip shows no queue, the delay window grows in the next round, so that the loss costs
 * no further round. If there is a queue, it may be the reason for the loss.
 */
static __always_inline void ctcp_end_recovery(struct ctcp *c, const struct ctcp_round *round)
{
	if (ctcp_measure(c, round) && ctcp_window(c) >= LOW_WINDOW && c->queued < c->gamma)
		c->step = ctcp_step(ctcp_window(c));
}

/* Halves both windows (beta = 1/2) at a loss or a mark. Returns their sum. */
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
 * CTCP-TUBE: at a loss, gamma moves by lambda = 1/4 towards 3/4 of the packets that a Reno connection with this loss window
 * had in the queue. A short queue that many connections share has no room for 30 packets of each.
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
