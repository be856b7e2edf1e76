/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The arithmetic of Vegas; vegas.bpf.c says where it is from. */
#ifndef EKIDEN_VEGAS_H
#define EKIDEN_VEGAS_H

#include "growth.h"

#define VEGAS_ALPHA (2 * PACKET) /* fewer in the queue: more is sent */
#define VEGAS_BETA (4 * PACKET)  /* more in the queue: less is sent */
#define VEGAS_GAMMA (1 * PACKET) /* more in the queue: slow start ends */

struct vegas {
	__u32 window;
	__u32 threshold; /* ssthresh */
	__u32 holds;     /* not 0: slow start holds the window for this round trip */
};

/* The end of a round trip that took `rtt_us`, at least, on a path that takes `base_us` when its queues are empty. */
static __always_inline void vegas_round(struct vegas *vegas, __u32 base_us, __u32 rtt_us)
{
	__u64 waiting = queued(vegas->window, base_us, rtt_us);

	if (vegas->window < vegas->threshold) {
		vegas->holds = !vegas->holds;
		if (waiting <= VEGAS_GAMMA)
			return;
		vegas->window = at_least_two(vegas->window - waiting / PACKET);
		vegas->threshold = vegas->window;
	} else if (waiting < VEGAS_ALPHA) {
		vegas->window++;
	} else if (waiting > VEGAS_BETA) {
		vegas->window = at_least_two(vegas->window - 1);
	}
}

#endif
