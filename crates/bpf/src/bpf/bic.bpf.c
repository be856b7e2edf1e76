/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * BIC. L. Xu, K. Harfoush, I. Rhee, "Binary Increase Congestion Control (BIC) for Fast Long-Distance Networks", IEEE
 * INFOCOM 2004.
 *
 * A search for the largest window that loses nothing: the last one that lost is the upper end, the present one the lower
 * end, and each round trip goes to the middle, by at most S_max packets. Past the upper end the search goes on, slowly at
 * first.
 *
 * differences        | paper                     | Linux's own                     | here
 * -------------------+---------------------------+---------------------------------+------------------------------------
 * S_max              | 32                        | 16                              | 16, as the authors' later versions
 * decrease           | 1/8                       | 1/5 (819/1024 remain)           | 1/5, with the smaller S_max
 * binary search      | to the middle             | a quarter of the way, by 1/20   | to the middle
 *                    |                           | packet when near                |
 * S_min              | 0.01 packets              | 1/20 packet                     | 0.01 packets
 * past the maximum   | 1, 2, 4, ... packets in a | a hyperbola                     | the paper's, from the distance
 *                    | round trip, by a state    |                                 | alone
 * small windows      | Reno below 14 packets     | the same                        | the same; the maximum is then the
 *                    |                           |                                 | window that lost
 */
#include "bic.h"
#include "tell.h"

char _license[] SEC("license") = "Dual MIT/GPL";

struct connection {
	struct kept kept;
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
	tell_loss(sk);
	return bic_reduce(window, &STATE_OF(sk, struct connection)->maximum);
}

SEC("struct_ops")
void BPF_PROG(bic_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct connection *state = STATE_OF(sk, struct connection);
	struct tcp_sock *tp = tcp_sk(sk);
	struct growth growth;

	mend(sk);
	if (is_window_limited(tp)) {
		if (in_slow_start(tp))
			acked = slow_start(tp, acked);
		growth = growth_of(tp, state->part);
		bic_grow(&growth, state->maximum, acked);
		use_growth(tp, &growth, &state->part);
	}
	keep(sk);
	end_round(sk, &state->round, ack);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops bic = {
	.name = "bic",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)kept_init,
	.ssthresh = (void *)kept_ssthresh,
	.cong_avoid = (void *)bic_cong_avoid,
	.set_state = (void *)tell_set_state,
	.pkts_acked = (void *)tell_pkts_acked,
	.undo_cwnd = (void *)tell_undo_cwnd,
};
