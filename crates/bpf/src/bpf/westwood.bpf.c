/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Westwood+. L. A. Grieco, S. Mascolo, "Performance Evaluation and Comparison of Westwood+, New Reno, and Vegas TCP
 * Congestion Control", ACM SIGCOMM Computer Communication Review 34(2), 2004.
 *
 * Reno, except that the window after a loss is the estimated bandwidth times the shortest RTT. Losses without congestion, as
 * on radio links, therefore cost little.
 *
 * differences        | paper                     | Linux's own                     | here
 * -------------------+---------------------------+---------------------------------+------------------------------------
 * sample             | packets acknowledged in   | the same, of at least 50 ms     | the same, of at least 50 ms: short
 *                    | one RTT                   |                                 | RTTs would measure bursts
 * filter             | 7/8 and 1/8               | 7/8 and 1/8, twice              | as in the paper
 * counted            | acks, duplicate ones too  | bytes by sequence number, with  | the kernel's count of delivered
 *                    |                           | guesses for duplicate acks      | packets, which includes SACK
 * idle times         | lower the estimate        | lower the estimate              | not part of any sample
 * after a loss       | window and ssthresh       | both are set when recovery ends | ssthresh is the estimate; the kernel
 *                    | are the estimate          |                                 | reduces the window to it (PRR)
 * before any sample  | not specified             | the smallest window             | half the window, as in Reno
 */
#include "telemetry.h"
#include "westwood.h"

char _license[] SEC("license") = "Dual MIT/GPL";

struct connection {
	struct last_values last;
	struct round round;
	__u32 delivered; /* packets at the start of the sample */
	__u32 since_us;
	__u64 bandwidth; /* in the unit of westwood.h; 0: no sample yet */
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

	if (us < larger(tp->srtt_us >> 3, WESTWOOD_MIN_SAMPLE_US))
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

	count_loss(sk);
	if (!state->bandwidth)
		return at_least_two(window / 2);
	return westwood_window(state->bandwidth, base_rtt_us(tp));
}

SEC("struct_ops")
void BPF_PROG(westwood_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct connection *state = STATE_OF(sk, struct connection);
	struct tcp_sock *tp = tcp_sk(sk);

	detect_omitted_calls(sk);
	if (is_window_limited(tp)) {
		if (in_slow_start(tp))
			acked = slow_start(tp, acked);
		additive_increase(tp, tp->snd_cwnd, acked);
	}
	take_sample(state, tp);
	record_state(sk);
	end_round(sk, &state->round, ack);
}

/* Idle times are not part of a sample. */
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
	.init = (void *)cc_init,
	.ssthresh = (void *)cc_ssthresh,
	.cong_avoid = (void *)westwood_cong_avoid,
	.set_state = (void *)common_set_state,
	.cwnd_event = (void *)westwood_cwnd_event,
	.pkts_acked = (void *)common_pkts_acked,
	.undo_cwnd = (void *)common_undo_cwnd,
};

SEC(".struct_ops.link")
struct tcp_congestion_ops westwood_7_1 = {
	.name = "westwood",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)cc_init,
	.ssthresh = (void *)cc_ssthresh,
	.cong_avoid = (void *)westwood_cong_avoid,
	.set_state = (void *)common_set_state,
	.cwnd_event_tx_start = (void *)westwood_cwnd_event_tx_start,
	.pkts_acked = (void *)common_pkts_acked,
	.undo_cwnd = (void *)common_undo_cwnd,
};
