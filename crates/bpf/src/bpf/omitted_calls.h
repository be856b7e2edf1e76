/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Detection of calls that the kernel has omitted (last_values.h has the reason), and their execution at the next call. For
 * an acknowledgement that is `pkts_acked`, before the kernel processes it.
 *
 * The state of each algorithm begins with `struct last_values`. An algorithm changes the window and ssthresh only between
 * `detect_omitted_calls` and `record_state`.
 */
#ifndef EKIDEN_OMITTED_CALLS_H
#define EKIDEN_OMITTED_CALLS_H

#include "cc.h"
#include "last_values.h"

/* Defined by each algorithm. */
static void begin(struct sock *sk);
static __u32 reduce(struct sock *sk, __u32 window); /* at a loss or a mark; returns the reduced window */

static __always_inline void record_state(struct sock *sk)
{
	record_values(STATE_OF(sk, struct last_values), tcp_sk(sk)->snd_cwnd, tcp_sk(sk)->snd_ssthresh);
}

/* The kernel stores the window in `prior_cwnd` before it calls `ssthresh`. */
static __always_inline void detect_omitted_calls(struct sock *sk)
{
	struct last_values *last = STATE_OF(sk, struct last_values);
	struct tcp_sock *tp = tcp_sk(sk);
	__u32 window = smaller(tp->prior_cwnd, last->max_window);

	if (!last->max_window) {
		begin(sk);
		window = tp->snd_cwnd;
		last->max_window = window;
	} else if (window && !is_expected_threshold(last, tp->snd_ssthresh)) {
		window = reduce(sk, window);
		tp->snd_ssthresh = window;
	}
	tp->snd_cwnd = expected_window(last, tp->snd_cwnd, window);
	record_state(sk);
}

SEC("struct_ops")
void BPF_PROG(cc_init, struct sock *sk)
{
	begin(sk);
	record_state(sk);
}

/* The kernel reduces the window to this value in proportion to the delivered packets (PRR, RFC 6937). */
SEC("struct_ops")
__u32 BPF_PROG(cc_ssthresh, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	__u32 threshold;

	detect_omitted_calls(sk);
	threshold = reduce(sk, tp->snd_cwnd);
	record_values(STATE_OF(sk, struct last_values), tp->snd_cwnd, threshold);
	return threshold;
}

#endif
