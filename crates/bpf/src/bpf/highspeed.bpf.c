/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * HighSpeed TCP. S. Floyd, "HighSpeed TCP for Large Congestion Windows", RFC 3649, 2003.
 *
 * Reno up to 38 packets; for larger windows, a(w) and b(w) yield a window of 0.12 / p^0.835 at loss rate p.
 *
 * differences        | RFC                       | Linux's own                     | here
 * -------------------+---------------------------+---------------------------------+------------------------------------
 * a(w), b(w)         | formulas (section 5) and  | appendix B's table, b in 1/256: | appendix B's table, computed from
 *                    | a table (appendix B)      | a(w) in whole packets makes the | the formulas, b in 1/1024, and
 *                    |                           | window 19 % too small at        | straight lines between its rows
 *                    |                           | p = 1/10000                     |
 * slow start         | limited slow start        | standard                        | standard
 *                    | (RFC 3742) recommended    |                                 |
 * the largest window | not specified             | sets snd_cwnd_clamp             | none: BPF cannot write it
 */
#include "highspeed.h"
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
	__u32 reduced = highspeed_reduce(window);

	count_loss(sk);
	return reduced;
}

SEC("struct_ops")
void BPF_PROG(highspeed_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct connection *state = STATE_OF(sk, struct connection);
	struct tcp_sock *tp = tcp_sk(sk);
	struct growth growth;

	detect_omitted_calls(sk);
	if (is_window_limited(tp)) {
		if (in_slow_start(tp))
			acked = slow_start(tp, acked);
		growth = growth_of(tp, state->part);
		highspeed_grow(&growth, acked);
		use_growth(tp, &growth, &state->part);
	}
	record_state(sk);
	end_round(sk, &state->round, ack);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops highspeed = {
	.name = "highspeed",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)cc_init,
	.ssthresh = (void *)cc_ssthresh,
	.cong_avoid = (void *)highspeed_cong_avoid,
	.set_state = (void *)common_set_state,
	.pkts_acked = (void *)common_pkts_acked,
	.undo_cwnd = (void *)common_undo_cwnd,
};
