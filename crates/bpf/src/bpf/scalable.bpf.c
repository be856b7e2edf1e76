/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Scalable TCP. T. Kelly, "Scalable TCP: Improving Performance in Highspeed Wide Area Networks", ACM SIGCOMM Computer
 * Communication Review 33(2), 2003.
 *
 * The time from a loss until the former window is the same for every window: about 13 round trips.
 *
 * differences        | paper                     | Linux's own                     | here
 * -------------------+---------------------------+---------------------------------+------------------------------------
 * increase           | 0.01 for each ack         | 1 for every min(cwnd, 50 or     | 0.01 per acknowledged packet, so
 *                    |                           | 100) packets, by version        | that delayed acks have no effect,
 *                    |                           |                                 | as in the analysis of the paper
 * decrease           | 1/8                       | 1/8                             | 1/8
 * small windows      | Reno up to 16 packets     | the increase is Reno's up to    | Reno up to 16 packets, increase and
 *                    |                           | 50 or 100, the decrease is 1/8  | decrease
 * slow start         | standard                  | standard                        | standard
 */
#include "scalable.h"
#include "telemetry.h"

char _license[] SEC("license") = "Dual MIT/GPL";

struct connection {
	struct last_values last;
	struct round round;
	__u32 part;
};

static __always_inline void begin(struct sock *sk)
{
	round_begin(&STATE_OF(sk, struct connection)->round, tcp_sk(sk));
}

static __always_inline __u32 reduce(struct sock *sk, __u32 window)
{
	count_loss(sk);
	return scalable_reduce(window);
}

SEC("struct_ops")
void BPF_PROG(scalable_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct connection *state = STATE_OF(sk, struct connection);
	struct tcp_sock *tp = tcp_sk(sk);
	struct growth growth;

	detect_omitted_calls(sk);
	if (is_window_limited(tp)) {
		if (in_slow_start(tp))
			acked = slow_start(tp, acked);
		growth = growth_of(tp, state->part);
		scalable_grow(&growth, acked);
		use_growth(tp, &growth, &state->part);
	}
	record_state(sk);
	end_round(sk, &state->round, ack);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops scalable = {
	.name = "scalable",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)cc_init,
	.ssthresh = (void *)cc_ssthresh,
	.cong_avoid = (void *)scalable_cong_avoid,
	.set_state = (void *)common_set_state,
	.pkts_acked = (void *)common_pkts_acked,
	.undo_cwnd = (void *)common_undo_cwnd,
};
