/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What a congestion control with nothing of its own to tell tells to programs outside, once a round trip: when the first
 * acknowledgement comes that may let the window grow.
 */
#ifndef EKIDEN_TELL_H
#define EKIDEN_TELL_H

#include "growth.h"
#include "mend.h"

/* The kernel's own minimum, of the last `tcp_min_rtt_wlen` seconds; 0 where there is none yet. */
static __always_inline __u32 base_rtt_us(const struct tcp_sock *tp)
{
	__u32 base = tp->rtt_min.s[0].v;

	return base == NO_RTT ? 0 : base;
}

/* The window, and the part of a packet that the algorithm keeps beside it. */
static __always_inline struct growth growth_of(const struct tcp_sock *tp, __u32 part)
{
	struct growth growth = { .window = tp->snd_cwnd, .part = part };

	return growth;
}

static __always_inline void use_growth(struct tcp_sock *tp, const struct growth *growth, __u32 *part)
{
	tp->snd_cwnd = smaller(growth->window, tp->snd_cwnd_clamp);
	*part = growth->part;
}

static __always_inline void tell_round(struct sock *sk, const struct round *round)
{
	struct section *section = section_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	if (!section)
		return;
	section->window = tp->snd_cwnd;
	section->base_rtt_us = base_rtt_us(tp);
	section->rtt_us = round->rtt_us == NO_RTT ? 0 : round->rtt_us;
	section->queued = queued(section->window, section->base_rtt_us, section->rtt_us) / PACKET;
	section->rounds++;
}

/* For `cong_avoid`, last. */
static __always_inline void end_round(struct sock *sk, struct round *round, __u32 ack)
{
	if (!round_is_over(round, ack))
		return;
	tell_round(sk, round);
	round_begin(round, tcp_sk(sk));
}

/* For `ssthresh`. */
static __always_inline void tell_loss(struct sock *sk)
{
	struct section *section = section_of(sk);

	if (section)
		section->losses++;
}

/* From here on: operations of every algorithm whose state begins like this. */
struct telling {
	struct kept kept;
	struct round round;
};

SEC("struct_ops")
void BPF_PROG(tell_set_state, struct sock *sk, __u8 state)
{
	struct section *section;

	mend(sk);
	section = state == TCP_CA_Loss ? section_of(sk) : 0;
	if (section)
		section->timeouts++;
}

SEC("struct_ops")
void BPF_PROG(tell_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	mend(sk);
	round_sample(&STATE_OF(sk, struct telling)->round, sample->rtt_us);
}

/* What the kernel took for a loss was none: the window is again what it was. */
SEC("struct_ops")
__u32 BPF_PROG(tell_undo_cwnd, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	mend(sk);
	return smaller(larger(tp->snd_cwnd, tp->prior_cwnd), STATE_OF(sk, struct kept)->most);
}

#endif
