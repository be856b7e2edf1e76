/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The arithmetic of Vegas; vegas.bpf.c has the source. */
#ifndef EKIDEN_VEGAS_H
#define EKIDEN_VEGAS_H

#include "growth.h"

#define VEGAS_ALPHA (2 * PACKET) /* the window grows with fewer packets in the queue */
#define VEGAS_BETA (4 * PACKET)  /* the window shrinks with more packets in the queue */
#define VEGAS_GAMMA (1 * PACKET) /* slow start ends with more packets in the queue */

struct vegas {
	__u32 window;
	__u32 threshold; /* ssthresh */
	__u32 holds;     /* not 0: slow start holds the window for this round trip */
};

/* Updates the window at the end of a round trip with the smallest RTT `rtt_us`, on a path whose RTT is `base_us` with empty
 * queues. */
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
