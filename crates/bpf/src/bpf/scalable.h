/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The arithmetic of Scalable TCP; scalable.bpf.c has the source. */
#ifndef EKIDEN_SCALABLE_H
#define EKIDEN_SCALABLE_H

#include "growth.h"

#define SCALABLE_LEGACY_WINDOW 16 /* packets; Reno up to this window */
#define SCALABLE_SHARE 100        /* acknowledged packets per packet of growth */

static __always_inline void scalable_grow(struct growth *growth, __u32 acked)
{
	if (growth->window <= SCALABLE_LEGACY_WINDOW)
		grow_by_round(growth, PACKET, acked);
	else
		add(growth, parts(PACKET, acked) / SCALABLE_SHARE);
}

static __always_inline __u32 scalable_reduce(__u32 window)
{
	return at_least_two(window <= SCALABLE_LEGACY_WINDOW ? window / 2 : window - window / 8);
}

#endif
