/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the kernel calls first in every congestion control here, and how a call that it has left out is made good: at the
 * next one that comes. Of an acknowledgement that is `pkts_acked`, before the kernel acts on the acknowledgement. kept.h
 * says why.
 *
 * The state of each algorithm begins with its `struct kept`. It changes the window and ssthresh only between `mend` and
 * `keep`.
 */
#ifndef EKIDEN_MEND_H
#define EKIDEN_MEND_H

#include "cc.h"
#include "kept.h"

/* Each algorithm has these two. */
static void begin(struct sock *sk);
static __u32 reduce(struct sock *sk, __u32 window); /* for a loss or a mark; returns what remains of the window */

static __always_inline void keep(struct sock *sk)
{
	kept_note(STATE_OF(sk, struct kept), tcp_sk(sk)->snd_cwnd, tcp_sk(sk)->snd_ssthresh);
}

/* The kernel stores the window as `prior_cwnd` when it asks for ssthresh. */
static __always_inline void mend(struct sock *sk)
{
	struct kept *kept = STATE_OF(sk, struct kept);
	struct tcp_sock *tp = tcp_sk(sk);
	__u32 window = smaller(tp->prior_cwnd, kept->most);

	if (!kept->most) {
		begin(sk);
		window = tp->snd_cwnd;
		kept->most = window;
	} else if (window && !kept_explains(kept, tp->snd_ssthresh)) {
		window = reduce(sk, window);
		tp->snd_ssthresh = window;
	}
	tp->snd_cwnd = kept_window(kept, tp->snd_cwnd, window);
	keep(sk);
}

SEC("struct_ops")
void BPF_PROG(kept_init, struct sock *sk)
{
	begin(sk);
	keep(sk);
}

/* The kernel brings the window down to what this returns, in step with what arrives (PRR, RFC 6937). */
SEC("struct_ops")
__u32 BPF_PROG(kept_ssthresh, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	__u32 threshold;

	mend(sk);
	threshold = reduce(sk, tp->snd_cwnd);
	kept_note(STATE_OF(sk, struct kept), tp->snd_cwnd, threshold);
	return threshold;
}

#endif
