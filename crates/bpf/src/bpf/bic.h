/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The arithmetic of BIC; bic.bpf.c has the source. */
#ifndef EKIDEN_BIC_H
#define EKIDEN_BIC_H

#include "growth.h"

#define BIC_LOW_WINDOW 14 /* packets; Reno below it */
#define BIC_S_MAX 16      /* packets per round trip */
#define BIC_S_MIN 10      /* 0.01 packets per round trip, in 1/1024 */
#define BIC_BETA 819      /* the share of the window that remains after a loss, 0.8, in 1/1024 */
#define BIC_UNKNOWN 0     /* the maximum before the first loss */

/* Beyond the maximum the search continues with 1, 2, 4, ... packets per round trip: each step is one more than all earlier
 * steps together. `past` is the distance from the maximum, in packets. */
static __always_inline __u32 bic_probe(__u32 past)
{
	__u32 step = 1;

	while (step < BIC_S_MAX && 2 * step <= past + 1)
		step *= 2;
	return step * PACKET;
}

/* The increment per round trip, in 1/1024 of a packet: half of the distance to the maximum, or a step beyond it. */
static __always_inline __u32 bic_increase(const struct growth *growth, __u32 maximum)
{
	__u32 window = growth->window, way;

	if (window < BIC_LOW_WINDOW)
		return PACKET;
	if (maximum == BIC_UNKNOWN)
		return BIC_S_MAX * PACKET;
	if (window >= maximum)
		return bic_probe(window - maximum);
	if (maximum - window > 2 * BIC_S_MAX)
		return BIC_S_MAX * PACKET;
	way = ((maximum - window) * PACKET - growth->part / (1 << 22)) / 2;
	return way < BIC_S_MIN ? BIC_S_MIN : way;
}

static __always_inline void bic_grow(struct growth *growth, __u32 maximum, __u32 acked)
{
	grow_by_round(growth, bic_increase(growth, maximum), acked);
}

/* Returns the window after a loss. A loss below the former maximum means that another connection has started: the new maximum
 * is then in the middle between the window before and after the loss (fast convergence). */
static __always_inline __u32 bic_reduce(__u32 window, __u32 *maximum)
{
	__u32 reduced = (__u64)window * BIC_BETA / PACKET;

	if (window < BIC_LOW_WINDOW) {
		*maximum = window;
		return at_least_two(window / 2);
	}
	*maximum = window < *maximum ? (window + reduced) / 2 : window;
	return at_least_two(reduced);
}

#endif
