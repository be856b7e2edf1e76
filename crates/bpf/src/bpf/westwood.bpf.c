/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Westwood+. L. A. Grieco, S. Mascolo, "Performance Evaluation and Comparison of Westwood+, New Reno, and Vegas TCP
 * Congestion Control", ACM SIGCOMM Computer Communication Review 34(2), 2004.
 *
 * Reno, but after a loss the window is what the path was seen to carry: estimated bandwidth times shortest RTT. Losses
 * that are no congestion, as on radio links, cost little.
 *
 * differences        | paper                     | Linux's own                     | here
 * -------------------+---------------------------+---------------------------------+------------------------------------
 * sample             | what is acknowledged in   | the same, of at least 50 ms     | the same, of at least 50 ms: short
 *                    | one RTT                   |                                 | RTTs would measure bursts
 * filter             | 7/8 and 1/8               | 7/8 and 1/8, twice              | the paper's
 * counted            | acks, duplicate ones too  | bytes by sequence number, with  | the kernel's count of delivered
 *                    |                           | guesses for duplicate acks      | packets, which knows SACK
 * idle times         | lower the estimate        | lower the estimate              | are in no sample
 * after a loss       | window and ssthresh       | both are set when recovery ends | ssthresh, to which the kernel
 *                    | are the estimate          |                                 | brings the window (PRR)
 * before any sample  | not said                  | the smallest window             | half the window, as Reno
 */
#include "tell.h"
#include "westwood.h"

char _license[] SEC("license") = "Dual MIT/GPL";

struct connection {
	struct kept kept;
	struct round round;
	__u32 delivered; /* packets, when the sample began */
	__u32 since_us;
	__u64 bandwidth; /* as westwood.h has it; 0: no sample yet */
};

static __always_inline void begin_sample(struct connection *state, const struct tcp_sock *tp)
{
	state->delivered = tp->delivered;
	state->since_us = tp->tcp_mstamp;
}

static __always_inline void take_sample(struct connection *state, const struct tcp_sock *tp)
{
	__u32 us = (__u32)tp->tcp_mstamp - state->since_us;
	__u64 sample = westwood_sample(tp->delivered - state->delivered, us);

	if (us < larger(tp->srtt_us >> 3, WESTWOOD_SHORTEST_US))
		return;
	state->bandwidth = westwood_filter(state->bandwidth, sample);
	begin_sample(state, tp);
}

static __always_inline void begin(struct sock *sk)
{
	struct connection *state = STATE_OF(sk, struct connection);

	round_begin(&state->round, tcp_sk(sk));
	begin_sample(state, tcp_sk(sk));
}

static __always_inline __u32 reduce(struct sock *sk, __u32 window)
{
	struct connection *state = STATE_OF(sk, struct connection);
	struct tcp_sock *tp = tcp_sk(sk);

	tell_loss(sk);
	if (!state->bandwidth)
		return at_least_two(window / 2);
	return westwood_window(state->bandwidth, base_rtt_us(tp));
}

SEC("struct_ops")
void BPF_PROG(westwood_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct connection *state = STATE_OF(sk, struct connection);
	struct tcp_sock *tp = tcp_sk(sk);

	mend(sk);
	if (is_window_limited(tp)) {
		if (in_slow_start(tp))
			acked = slow_start(tp, acked);
		additive_increase(tp, tp->snd_cwnd, acked);
	}
	take_sample(state, tp);
	keep(sk);
	end_round(sk, &state->round, ack);
}

/* A connection that was idle has not measured the path meanwhile. */
SEC("struct_ops")
void BPF_PROG(westwood_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (IS_EVENT(event, CA_EVENT_TX_START))
		begin_sample(STATE_OF(sk, struct connection), tcp_sk(sk));
}

SEC("struct_ops")
void BPF_PROG(westwood_cwnd_event_tx_start, struct sock *sk)
{
	begin_sample(STATE_OF(sk, struct connection), tcp_sk(sk));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops westwood = {
	.name = "westwood",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)kept_init,
	.ssthresh = (void *)kept_ssthresh,
	.cong_avoid = (void *)westwood_cong_avoid,
	.set_state = (void *)tell_set_state,
	.cwnd_event = (void *)westwood_cwnd_event,
	.pkts_acked = (void *)tell_pkts_acked,
	.undo_cwnd = (void *)tell_undo_cwnd,
};

SEC(".struct_ops.link")
struct tcp_congestion_ops westwood_7_1 = {
	.name = "westwood",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)kept_init,
	.ssthresh = (void *)kept_ssthresh,
	.cong_avoid = (void *)westwood_cong_avoid,
	.set_state = (void *)tell_set_state,
	.cwnd_event_tx_start = (void *)westwood_cwnd_event_tx_start,
	.pkts_acked = (void *)tell_pkts_acked,
	.undo_cwnd = (void *)tell_undo_cwnd,
};
