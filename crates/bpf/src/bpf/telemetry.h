/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Telemetry of the congestion controls that have no telemetry of their own, updated once per round trip: at the first
 * acknowledgement that may increase the window.
 */
#ifndef EKIDEN_TELEMETRY_H
#define EKIDEN_TELEMETRY_H

#include "growth.h"
#include "omitted_calls.h"

/* The minimum RTT of the kernel, of the last `tcp_min_rtt_wlen` seconds; 0 without a sample. */
static __always_inline __u32 base_rtt_us(const struct tcp_sock *tp)
{
	__u32 base = tp->rtt_min.s[0].v;

	return base == NO_RTT ? 0 : base;
}

/* The window, and the fraction of a packet that the algorithm stores. */
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

static __always_inline void report_round(struct sock *sk, const struct round *round)
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

/* The last step of `cong_avoid`. */
static __always_inline void end_round(struct sock *sk, struct round *round, __u32 ack)
{
	if (!round_is_over(round, ack))
		return;
	report_round(sk, round);
	round_begin(round, tcp_sk(sk));
}

/* A step of `ssthresh`. */
static __always_inline void count_loss(struct sock *sk)
{
	struct section *section = section_of(sk);

	if (section)
		section->losses++;
}

/* The operations below are for algorithms whose state begins with this structure. */
struct common_state {
	struct last_values last;
	struct round round;
};

SEC("struct_ops")
void BPF_PROG(common_set_state, struct sock *sk, __u8 state)
{
	struct section *section;

	detect_omitted_calls(sk);
	section = state == TCP_CA_Loss ? section_of(sk) : 0;
	if (section)
		section->timeouts++;
}

SEC("struct_ops")
void BPF_PROG(common_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	detect_omitted_calls(sk);
	round_sample(&STATE_OF(sk, struct common_state)->round, sample->rtt_us);
}

/* The kernel has detected a spurious loss: restores the window before the reduction. */
SEC("struct_ops")
__u32 BPF_PROG(common_undo_cwnd, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	detect_omitted_calls(sk);
	return smaller(larger(tp->snd_cwnd, tp->prior_cwnd), STATE_OF(sk, struct last_values)->max_window);
}

#endif
