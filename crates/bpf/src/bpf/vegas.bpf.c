/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Vegas. L. S. Brakmo, L. L. Peterson, "TCP Vegas: End to End Congestion Avoidance on a Global Internet", IEEE Journal on
 * Selected Areas in Communications 13(8), 1995.
 *
 * Keeps between alpha and beta packets of its own in the path's queues, by comparing the RTT with the shortest one.
 *
 * differences        | paper                     | Linux's own                     | here
 * -------------------+---------------------------+---------------------------------+------------------------------------
 * alpha, beta, gamma | 2, 4, 1 packets (1, 3, 1  | 2, 4, 1                         | 2, 4, 1
 *                    | in its first form)        |                                 |
 * waiting packets    | window (1 - base / RTT)   | window (RTT / base - 1), which  | as in the paper, in 1/1024 packets
 *                    |                           | is more, in whole packets       |
 * RTT of a round     | that of one segment       | the shortest of at least 3      | the shortest of at least 3; else
 *                    |                           | samples                         | the round trip is as in Reno
 * base RTT           | of the whole connection   | of the whole connection         | the kernel's minimum of 300 s, so
 *                    |                           |                                 | that a longer route is detected
 * slow start         | grows in every other      | in every round trip             | as in the paper
 *                    | round trip                |                                 |
 * after a loss       | 3/4 of the window, and    | 1/2, the kernel's recovery      | 1/2, the kernel's recovery
 *                    | its own retransmission    |                                 |
 * bursts             | not specified             | not paced                       | paced: one burst of segmentation
 *                    |                           |                                 | offload is longer than beta
 */
#include "telemetry.h"
#include "vegas.h"

char _license[] SEC("license") = "Dual MIT/GPL";

#define SAMPLES 3 /* at least one of them is not of a delayed acknowledgement */

struct connection {
	struct last_values last;
	struct round round;
	__u32 holds;
};

static __always_inline bool is_in_loss(const struct sock *sk)
{
	return BPF_CORE_READ_BITFIELD(inet_csk(sk), icsk_ca_state) == TCP_CA_Loss;
}

/* The end of a round trip. */
static __always_inline void steer(struct tcp_sock *tp, struct connection *state)
{
	struct vegas vegas = { .window = tp->snd_cwnd, .threshold = tp->snd_ssthresh, .holds = state->holds };

	if (state->round.samples >= SAMPLES) {
		vegas_round(&vegas, base_rtt_us(tp), state->round.rtt_us);
	} else {
		vegas.holds = 0;
		vegas.window += !in_slow_start(tp);
	}
	if (vegas.window > tp->snd_cwnd && !is_window_limited(tp))
		vegas.window = tp->snd_cwnd;
	tp->snd_cwnd = smaller(vegas.window, tp->snd_cwnd_clamp);
	tp->snd_ssthresh = vegas.threshold;
	state->holds = vegas.holds;
}

static __always_inline void begin(struct sock *sk)
{
	pace(sk);
	round_begin(&STATE_OF(sk, struct connection)->round, tcp_sk(sk));
}

static __always_inline __u32 reduce(struct sock *sk, __u32 window)
{
	count_loss(sk);
	return at_least_two(window / 2);
}

SEC("struct_ops")
void BPF_PROG(vegas_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct connection *state = STATE_OF(sk, struct connection);
	struct tcp_sock *tp = tcp_sk(sk);
	bool lost = is_in_loss(sk);

	detect_omitted_calls(sk);
	if (in_slow_start(tp) && (lost || !state->holds) && is_window_limited(tp))
		slow_start(tp, acked);
	if (!lost && round_is_over(&state->round, ack))
		steer(tp, state);
	record_state(sk);
	end_round(sk, &state->round, ack);
}

/* Samples from before an idle time do not describe the window after it. */
SEC("struct_ops")
void BPF_PROG(vegas_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (IS_EVENT(event, CA_EVENT_TX_START) || IS_EVENT(event, CA_EVENT_COMPLETE_CWR))
		round_begin(&STATE_OF(sk, struct connection)->round, tcp_sk(sk));
}

SEC("struct_ops")
void BPF_PROG(vegas_cwnd_event_tx_start, struct sock *sk)
{
	round_begin(&STATE_OF(sk, struct connection)->round, tcp_sk(sk));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops vegas = {
	.name = "vegas",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)cc_init,
	.ssthresh = (void *)cc_ssthresh,
	.cong_avoid = (void *)vegas_cong_avoid,
	.set_state = (void *)common_set_state,
	.cwnd_event = (void *)vegas_cwnd_event,
	.pkts_acked = (void *)common_pkts_acked,
	.undo_cwnd = (void *)common_undo_cwnd,
};

SEC(".struct_ops.link")
struct tcp_congestion_ops vegas_7_1 = {
	.name = "vegas",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)cc_init,
	.ssthresh = (void *)cc_ssthresh,
	.cong_avoid = (void *)vegas_cong_avoid,
	.set_state = (void *)common_set_state,
	.cwnd_event = (void *)vegas_cwnd_event,
	.cwnd_event_tx_start = (void *)vegas_cwnd_event_tx_start,
	.pkts_acked = (void *)common_pkts_acked,
	.undo_cwnd = (void *)common_undo_cwnd,
};
