/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The kernel may leave out a call of ours and does not say so: then the trampoline of BPF hands it, as the answer of
 * `ssthresh` or `undo_cwnd`, what was on the stack. Linux 5.12 to 6.0 leave out a program that this processor is running
 * already, for another connection (kernel commit 64696c40d03c: "Skip running the '.ssthresh' will end up returning random
 * value to the caller"). Seen on Linux 6.18.44 in a guest: its __bpf_prog_enter leaves out all of them in a softirq on top
 * of a thread of process 1. ssthresh was 0x81104110, a return address in srso_alias_return_thunk, and the window
 * 1105453791 packets.
 *
 * So an algorithm keeps the true values of both, and detects values that no code has set. Nothing here knows the kernel's
 * types; mend.h restores the values.
 */
#ifndef EKIDEN_KEPT_H
#define EKIDEN_KEPT_H

#include "growth.h"

#define NO_THRESHOLD 0x7fffffff /* TCP_INFINITE_SSTHRESH */

struct kept {
	__u32 threshold; /* ssthresh, as it was last */
	__u32 most;      /* the largest window or ssthresh there was; 0: the connection has not begun */
};

static __always_inline void kept_note(struct kept *kept, __u32 window, __u32 threshold)
{
	kept->threshold = threshold;
	kept->most = larger(kept->most, larger(window, threshold < NO_THRESHOLD ? threshold : 0));
}

/* Without asking, the kernel only ever raises ssthresh: to 3/4 of a window after an idle time (tcp_current_ssthresh), and
 * back to what it was before a reduction that was none (tcp_undo_cwnd_reduction). */
static __always_inline bool kept_explains(const struct kept *kept, __u32 threshold)
{
	if (threshold <= kept->threshold)
		return threshold == kept->threshold;
	return threshold <= kept->most || threshold == NO_THRESHOLD;
}

/* Without asking, the kernel only ever lowers the window, but for what it was before: then it is `otherwise`. */
static __always_inline __u32 kept_window(const struct kept *kept, __u32 window, __u32 otherwise)
{
	return window && window <= kept->most ? window : smaller(at_least_two(otherwise), kept->most);
}

#endif
