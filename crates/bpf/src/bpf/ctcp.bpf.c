/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Compound TCP: Tan, Song, Zhang, Sridharan, "A Compound TCP Approach for High-speed and Long Distance Networks", IEEE
 * INFOCOM 2006 (the paper), and Sridharan, Tan, Bansal, Thaler, draft-sridharan-tcpm-ctcp-02, 2008 (the draft). It follows
 * these specifications and not Windows, whose versions differ from each other.
 *
 * The window is the sum of two. The loss window `cwnd` is that of Reno. The delay window `dwnd` grows fast while the RTT
 * shows almost no queue, shrinks as a queue builds up, and is halved at a loss as cwnd is:
 *
 *     for each packet acknowledged   cwnd += 1 / (cwnd + dwnd)
 *     in each round trip             queued = window (1 - base RTT / RTT)
 *         queued < gamma             dwnd += max(alpha window^k - 1, 0)
 *         else                       dwnd  = max(dwnd - eta queued, 0)
 *     at a loss or a mark            both are halved (beta = 1/2)
 *     at a retransmission timeout    dwnd = 0, base RTT and gamma as at the start
 *
 * with alpha = 1/8, k = 3/4, eta = 1, gamma = 30 packets. A window below 38 packets grows as in Reno. Slow start is that of
 * Reno except for its end.
 *
 * Differences from the texts and from other implementations:
 *
 *   what                     here                      elsewhere
 *   growth of dwnd           window^k: the paper       dwnd^k: the draft's first versions
 *   time of the growth       spread over the round     at the end of the round (the draft): bursts
 *   after dwnd shrank        one round is ignored:     shrinks twice for one queue
 *                            all its samples are of
 *                            packets sent before
 *   eta                      1                         0.03 in one ns-3 port
 *   gamma                    30; tuned on request      tuned (CTCP-TUBE): the draft
 *   lambda of the tuning     1/4                       not in the draft; 1/2, 1/4, 0.2, 0.8
 *   RTT of a round           the smallest of at least  an average of samples: the paper
 *                            3, as Vegas
 *   base RTT                 kept over idle times,     of the connection: the draft
 *                            measured again after a
 *                            timeout, after 5 to 10
 *                            minutes without a queue,
 *                            and if the path has
 *                            become longer
 *                            (ctcp_doubt_base)
 *   window for `queued`      the part that is in use     min(window, receiver's): the draft, and the same
 *   slow start               also ends with gamma      ends at a loss of as many packets as the queue is
 *                            packets in the queue      long. Half of the queue stays full, as loss window,
 *                            (ctcp_end_slow_start)     which does not shrink for other connections
 *   window falls below 38    dwnd becomes cwnd         dwnd is lost
 *   recovery                 the kernel's: PRR, RACK   NewReno with SACK
 *   bursts                   paced by the kernel       not specified: 30 packets are less than one burst
 *                                                      of segmentation offload
 *
 * Patents, for distributors to assess: US 7,577,097 (Compound TCP, filed in March 2005), US 7,729,249 (tuning of gamma,
 * priority July 2007, reported as lapsed). Therefore gamma is fixed unless the profile requests tuning.
 */
#include "cc.h"
#include "ctcp.h"
#include "omitted_calls.h"

#ifndef CTCP_NAME
#define CTCP_NAME "ctcp"
#endif

char _license[] SEC("license") = "Dual MIT/GPL";

struct connection {
	struct last_values last;
	struct ctcp ctcp;
	struct round round;
};

static __always_inline void report_round(struct section *section, const struct ctcp *c, const struct round *round)
{
	__u32 base_us = ctcp_base_us(c);

	section->window = ctcp_window(c);
	section->loss_window = c->cwnd;
	section->delay_window = c->dwnd;
	section->base_rtt_us = base_us == NONE ? 0 : base_us;
	section->rtt_us = round->rtt_us == NO_RTT ? 0 : round->rtt_us;
	section->queued = c->queued / FRACTION;
	section->gamma_now = c->gamma / FRACTION;
	section->rounds++;
}

static __always_inline __u32 window_in_use(const struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return tp->snd_cwnd;
	return smaller(tp->snd_cwnd, tp->max_packets_out);
}

/* Reduces the window for a queue, and ssthresh with it, so that slow start does not undo the reduction. */
static __always_inline void give_up(struct tcp_sock *tp, __u32 window)
{
	if (window >= tp->snd_cwnd)
		return;
	tp->snd_cwnd = window;
	tp->snd_ssthresh = smaller(tp->snd_ssthresh, window);
}

static __always_inline struct ctcp_round shown(const struct tcp_sock *tp, const struct round *round)
{
	return (struct ctcp_round){
		.rtt_us = round->rtt_us,
		.samples = round->samples,
		.used = window_in_use(tp),
		.now_ms = tp->tcp_mstamp / 1000,
	};
}

static __always_inline void end_round(struct sock *sk, struct connection *connection)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct ctcp *c = &connection->ctcp;
	struct section *section = section_of(sk);
	struct ctcp_round round = shown(tp, &connection->round);

	if (section && !section->auto_gamma)
		ctcp_fix_gamma(c, section->gamma);
	ctcp_end_round(c, &round, in_slow_start(tp));
	give_up(tp, ctcp_window(c));
	if (section)
		report_round(section, c, &connection->round);
	round_begin(&connection->round, tp);
}

static __always_inline void begin(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct connection *connection = STATE_OF(sk, struct connection);
	struct section *section = section_of(sk);

	pace(sk);
	ctcp_start(&connection->ctcp, tp->snd_cwnd);
	ctcp_fix_gamma(&connection->ctcp, section && !section->auto_gamma ? section->gamma : 0);
	round_begin(&connection->round, tp);
}

SEC("struct_ops")
void BPF_PROG(ctcp_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct connection *connection = STATE_OF(sk, struct connection);

	detect_omitted_calls(sk);
	round_sample(&connection->round, sample->rtt_us);
	if (sample->rtt_us > 0)
		ctcp_sample(&connection->ctcp, sample->rtt_us);
}

static __always_inline void avoid(struct sock *sk, __u32 ack, __u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct connection *connection = STATE_OF(sk, struct connection);
	struct ctcp *c = &connection->ctcp;

	ctcp_follow(c, tp->snd_cwnd, in_slow_start(tp));
	if (round_is_over(&connection->round, ack))
		end_round(sk, connection);
	if (!is_window_limited(tp))
		return;
	if (in_slow_start(tp)) {
		acked = slow_start(tp, acked);
		ctcp_follow(c, tp->snd_cwnd, true);
		if (ctcp_end_slow_start(c)) {
			tp->snd_ssthresh = tp->snd_cwnd;
			round_begin(&connection->round, tp);
		}
	}
	ctcp_grow(c, acked);
	ctcp_follow(c, smaller(ctcp_window(c), tp->snd_cwnd_clamp), false);
	tp->snd_cwnd = ctcp_window(c);
}

SEC("struct_ops")
void BPF_PROG(ctcp_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	detect_omitted_calls(sk);
	avoid(sk, ack, acked);
	record_state(sk);
}

static __always_inline __u32 reduce(struct sock *sk, __u32 window)
{
	struct connection *connection = STATE_OF(sk, struct connection);
	struct section *section = section_of(sk);

	if (section)
		section->losses++;
	if (section && section->auto_gamma)
		ctcp_tune_gamma(&connection->ctcp);
	ctcp_follow(&connection->ctcp, window, window < connection->last.threshold);
	round_begin(&connection->round, tcp_sk(sk));
	return ctcp_reduce(&connection->ctcp);
}

SEC("struct_ops")
__u32 BPF_PROG(ctcp_undo_cwnd, struct sock *sk)
{
	detect_omitted_calls(sk);
	return ctcp_undo(&STATE_OF(sk, struct connection)->ctcp, tcp_sk(sk)->snd_cwnd);
}

SEC("struct_ops")
void BPF_PROG(ctcp_set_state, struct sock *sk, __u8 state)
{
	struct section *section;

	detect_omitted_calls(sk);
	if (state != TCP_CA_Loss)
		return;
	ctcp_timeout(&STATE_OF(sk, struct connection)->ctcp, tcp_sk(sk)->snd_cwnd);
	section = section_of(sk);
	if (section)
		section->timeouts++;
}

/* Samples from before an idle time or of a recovery do not describe the window afterwards. */
SEC("struct_ops")
void BPF_PROG(ctcp_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct connection *connection = STATE_OF(sk, struct connection);

	if (IS_EVENT(event, CA_EVENT_COMPLETE_CWR)) {
		struct ctcp_round round = shown(tp, &connection->round);

		ctcp_follow(&connection->ctcp, tp->snd_cwnd, in_slow_start(tp));
		ctcp_end_recovery(&connection->ctcp, &round);
		round_begin(&connection->round, tp);
	} else if (IS_EVENT(event, CA_EVENT_TX_START) || IS_EVENT(event, CA_EVENT_CWND_RESTART)) {
		round_begin(&connection->round, tp);
	}
}

SEC("struct_ops")
void BPF_PROG(ctcp_cwnd_event_tx_start, struct sock *sk)
{
	round_begin(&STATE_OF(sk, struct connection)->round, tcp_sk(sk));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops ctcp = {
	.name = CTCP_NAME,
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)cc_init,
	.ssthresh = (void *)cc_ssthresh,
	.cong_avoid = (void *)ctcp_cong_avoid,
	.set_state = (void *)ctcp_set_state,
	.cwnd_event = (void *)ctcp_cwnd_event,
	.pkts_acked = (void *)ctcp_pkts_acked,
	.undo_cwnd = (void *)ctcp_undo_cwnd,
};

SEC(".struct_ops.link")
struct tcp_congestion_ops ctcp_7_1 = {
	.name = CTCP_NAME,
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)cc_init,
	.ssthresh = (void *)cc_ssthresh,
	.cong_avoid = (void *)ctcp_cong_avoid,
	.set_state = (void *)ctcp_set_state,
	.cwnd_event = (void *)ctcp_cwnd_event,
	.cwnd_event_tx_start = (void *)ctcp_cwnd_event_tx_start,
	.pkts_acked = (void *)ctcp_pkts_acked,
	.undo_cwnd = (void *)ctcp_undo_cwnd,
};
