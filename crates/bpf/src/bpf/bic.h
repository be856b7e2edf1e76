/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The arithmetic of BIC; bic.bpf.c says where it is from. */
#ifndef EKIDEN_BIC_H
#define EKIDEN_BIC_H

#include "growth.h"

#define BIC_LOW 14    /* packets; below it is Reno */
#define BIC_MOST 16   /* packets in a round trip: S_max */
#define BIC_LEAST 10  /* 1/1024 packets in a round trip: S_min, 0.01 */
#define BIC_KEPT 819  /* of 1024 remain after a loss: 0.8 */
#define BIC_UNKNOWN 0 /* the maximum before the first loss */

/* Past the maximum the search goes on with 1, 2, 4, ... packets in a round trip: each step as wide as all before it
 * and one more. `past` is how far it has come, in packets. */
static __always_inline __u32 bic_probe(__u32 past)
{
	__u32 step = 1;

	while (step < BIC_MOST && 2 * step <= past + 1)
		step *= 2;
	return step * PACKET;
}

/* What a round trip adds, in 1/1024 of a packet: half of the way to the maximum, or the search for a new one. */
static __always_inline __u32 bic_increase(const struct growth *growth, __u32 maximum)
{
	__u32 window = growth->window, way;

	if (window < BIC_LOW)
		return PACKET;
	if (maximum == BIC_UNKNOWN)
		return BIC_MOST * PACKET;
	if (window >= maximum)
		return bic_probe(window - maximum);
	if (maximum - window > 2 * BIC_MOST)
		return BIC_MOST * PACKET;
	way = ((maximum - window) * PACKET - growth->part / (1 << 22)) / 2;
	return way < BIC_LEAST ? BIC_LEAST : way;
}

static __always_inline void bic_grow(struct growth *growth, __u32 maximum, __u32 acked)
{
	grow_by_round(growth, bic_increase(growth, maximum), acked);
}

/* The window after a loss. A window that has not returned to the old maximum has to share with a new connection: it
 * yields by aiming at the middle between its old and its new size (fast convergence). */
static __always_inline __u32 bic_reduce(__u32 window, __u32 *maximum)
{
	__u32 reduced = (__u64)window * BIC_KEPT / PACKET;

	if (window < BIC_LOW) {
		*maximum = window;
		return at_least_two(window / 2);
	}
	*maximum = window < *maximum ? (window + reduced) / 2 : window;
	return at_least_two(reduced);
}

#endif
