/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * BIC. L. Xu, K. Harfoush, I. Rhee, "Binary Increase Congestion Control (BIC) for Fast Long-Distance Networks", IEEE
 * INFOCOM 2004.
 *
 * Binary search for the largest window without loss: the window at the last loss is the upper end, the current window the
 * lower end, and each round trip moves to the middle, by at most S_max packets. Beyond the upper end the search continues,
 * slowly at first.
 *
 * differences        | paper                     | Linux's own                     | here
 * -------------------+---------------------------+---------------------------------+------------------------------------
 * S_max              | 32                        | 16                              | 16, as later versions of the authors
 * decrease           | 1/8                       | 1/5 (819/1024 remain)           | 1/5, with the smaller S_max
 * binary search      | to the middle             | a quarter of the way, by 1/20   | to the middle
 *                    |                           | packet near the target          |
 * S_min              | 0.01 packets              | 1/20 packet                     | 0.01 packets
 * past the maximum   | 1, 2, 4, ... packets in a | a hyperbola                     | as in the paper, from the distance
 *                    | round trip, by a state    |                                 | alone
 * small windows      | Reno below 14 packets     | the same                        | the same; the maximum is the window
 *                    |                           |                                 | at the loss
 */
#include "bic.h"
#include "telemetry.h"

char _license[] SEC("license") = "Dual MIT/GPL";

struct connection {
	struct last_values last;
	struct round round;
	__u32 part;
	__u32 maximum;
};

static __always_inline void begin(struct sock *sk)
{
	round_begin(&STATE_OF(sk, struct connection)->round, tcp_sk(sk));
}

static __always_inline __u32 reduce(struct sock *sk, __u32 window)
{
	count_loss(sk);
	return bic_reduce(window, &STATE_OF(sk, struct connection)->maximum);
}

SEC("struct_ops")
void BPF_PROG(bic_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct connection *state = STATE_OF(sk, struct connection);
	struct tcp_sock *tp = tcp_sk(sk);
	struct growth growth;

	detect_omitted_calls(sk);
	if (is_window_limited(tp)) {
		if (in_slow_start(tp))
			acked = slow_start(tp, acked);
		growth = growth_of(tp, state->part);
		bic_grow(&growth, state->maximum, acked);
		use_growth(tp, &growth, &state->part);
	}
	record_state(sk);
	end_round(sk, &state->round, ack);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops bic = {
	.name = "bic",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)cc_init,
	.ssthresh = (void *)cc_ssthresh,
	.cong_avoid = (void *)bic_cong_avoid,
	.set_state = (void *)common_set_state,
	.pkts_acked = (void *)common_pkts_acked,
	.undo_cwnd = (void *)common_undo_cwnd,
};
