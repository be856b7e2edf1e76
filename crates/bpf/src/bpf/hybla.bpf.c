/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Hybla. C. Caini, R. Firrincieli, "TCP Hybla: a TCP Enhancement for Heterogeneous Networks", International Journal of
 * Satellite Communications and Networking 22(5), 2004.
 *
 * Makes a connection with a long RTT as fast as one with 25 ms: the window grows by 2^rho - 1 per acknowledged packet in
 * slow start and by rho^2 per round trip afterwards, with rho = RTT / 25 ms. Below 25 ms it is Reno.
 *
 * differences        | paper                     | Linux's own                     | here
 * -------------------+---------------------------+---------------------------------+------------------------------------
 * RTT for rho        | measured                  | the smallest smoothed one       | the kernel's minimum of 300 s, so
 *                    |                           |                                 | that a queue does not increase it
 * first window       | rho times the usual       | rho, from 2                     | rho packets, if the usual is less
 * slow start         | 2^rho - 1                 | 2^rho - 1, rho up to 16         | 2^rho - 1, rho up to 4: 16 times
 *                    |                           |                                 | the window in a round trip
 * end of slow start  | ssthresh from an estimate | a loss                          | an RTT that is longer by 1/8 and
 *                    | of bandwidth (Hoe)        |                                 | 4 ms, or a loss
 * largest rho        | none                      | none in congestion avoidance    | 64 (RTT 1.6 s)
 * spacing of packets | required                  | none                            | pacing of the kernel
 */
#include "hybla.h"
#include "telemetry.h"

char _license[] SEC("license") = "Dual MIT/GPL";

#define SAMPLES 3 /* least number per round trip for a valid RTT */

struct connection {
	struct last_values last;
	struct round round;
	__u32 part;
	__u32 rho;
};

/* Updates rho, and ends slow start if there is a queue, at the end of a round trip. */
static __always_inline void learn(struct tcp_sock *tp, struct connection *state)
{
	__u32 base_us = base_rtt_us(tp);

	state->rho = hybla_rho(base_us);
	if (in_slow_start(tp) && state->round.samples >= SAMPLES && hybla_sees_queue(base_us, state->round.rtt_us))
		tp->snd_ssthresh = tp->snd_cwnd;
}

static __always_inline void begin(struct sock *sk)
{
	struct connection *state = STATE_OF(sk, struct connection);
	struct tcp_sock *tp = tcp_sk(sk);

	pace(sk);
	round_begin(&state->round, tp);
	state->rho = hybla_rho(base_rtt_us(tp));
	tp->snd_cwnd = smaller(larger(tp->snd_cwnd, state->rho / PACKET), tp->snd_cwnd_clamp);
}

static __always_inline __u32 reduce(struct sock *sk, __u32 window)
{
	count_loss(sk);
	return at_least_two(window / 2);
}

SEC("struct_ops")
void BPF_PROG(hybla_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct connection *state = STATE_OF(sk, struct connection);
	struct tcp_sock *tp = tcp_sk(sk);
	struct growth growth;

	detect_omitted_calls(sk);
	if (round_is_over(&state->round, ack))
		learn(tp, state);
	if (is_window_limited(tp)) {
		growth = growth_of(tp, state->part);
		hybla_grow(&growth, tp->snd_ssthresh, state->rho, acked);
		use_growth(tp, &growth, &state->part);
	}
	record_state(sk);
	end_round(sk, &state->round, ack);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops hybla = {
	.name = "hybla",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)cc_init,
	.ssthresh = (void *)cc_ssthresh,
	.cong_avoid = (void *)hybla_cong_avoid,
	.set_state = (void *)common_set_state,
	.pkts_acked = (void *)common_pkts_acked,
	.undo_cwnd = (void *)common_undo_cwnd,
};
