/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The kernel may omit a call of a BPF program without notice: the BPF trampoline then returns a value from the stack as the
 * result of `ssthresh` or `undo_cwnd`. Linux 5.12 to 6.0 omit a program that is already running on this processor for
 * another connection (kernel commit 64696c40d03c: "Skip running the '.ssthresh' will end up returning random value to the
 * caller"). Linux 6.18.44 in a virtual machine was seen to omit all of them in a softirq that interrupted a thread of
 * process 1 (__bpf_prog_enter). ssthresh was 0x81104110, a return address in srso_alias_return_thunk, and the window was
 * 1105453791 packets.
 *
 * Therefore each algorithm records the last values of ssthresh and of the window, and detects values that neither it nor the
 * kernel has set. This file uses no types of the kernel; omitted_calls.h restores the values.
 */
#ifndef EKIDEN_LAST_VALUES_H
#define EKIDEN_LAST_VALUES_H

#include "growth.h"

#define NO_THRESHOLD 0x7fffffff /* TCP_INFINITE_SSTHRESH */

struct last_values {
	__u32 threshold;  /* the last ssthresh */
	__u32 max_window; /* the largest window or finite ssthresh so far; 0 before the start of the connection */
};

static __always_inline void record_values(struct last_values *last, __u32 window, __u32 threshold)
{
	last->threshold = threshold;
	last->max_window = larger(last->max_window, larger(window, threshold < NO_THRESHOLD ? threshold : 0));
}

/* Without a call of the algorithm, the kernel only raises ssthresh: to 3/4 of a window after an idle time
 * (tcp_current_ssthresh), and to the former value when it undoes a reduction (tcp_undo_cwnd_reduction). */
static __always_inline bool is_expected_threshold(const struct last_values *last, __u32 threshold)
{
	if (threshold <= last->threshold)
		return threshold == last->threshold;
	return threshold <= last->max_window || threshold == NO_THRESHOLD;
}

/* Returns `window` if it is plausible, else `otherwise`: without a call of the algorithm, the kernel never raises the window
 * above its largest value so far. */
static __always_inline __u32 expected_window(const struct last_values *last, __u32 window, __u32 otherwise)
{
	return window && window <= last->max_window ? window : smaller(at_least_two(otherwise), last->max_window);
}

#endif
