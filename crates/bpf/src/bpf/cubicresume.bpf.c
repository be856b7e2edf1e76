/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * CUBIC of the kernel (RFC 9438) with Careful Resume (RFC 9959): a connection can start with a window that user space has
 * stored. resume.h has the phases and the differences from the RFC. A connection without a request behaves as with CUBIC,
 * except that tcp_min_tso_segs is always 2.
 *
 * CUBIC stores the window at a loss as its next target (W_max). In Safe Retreat that is PipeSize, because the window of the
 * jump has never been validated.
 */
#include "cubic.h"
#include "omitted_calls.h"
#include "resume_socket.h"

char _license[] SEC("license") = "Dual MIT/GPL";

#define MIN_TSO_SEGS 2 /* the default of tcp_min_tso_segs */

struct connection {
	struct last_values last;
	struct round round;
};

/* Updates the telemetry once per round trip. */
static __always_inline void report_round(struct sock *sk, __u32 ack)
{
	struct round *round = &STATE_OF(sk, struct connection)->round;
	struct tcp_sock *tp = tcp_sk(sk);
	struct section *section;

	if (!round_is_over(round, ack))
		return;
	section = section_of(sk);
	if (section) {
		section->window = tp->snd_cwnd;
		section->base_rtt_us = tp->rtt_min.s[0].v == NO_RTT ? 0 : tp->rtt_min.s[0].v;
		section->rtt_us = round->rtt_us == NO_RTT ? 0 : round->rtt_us;
		section->queued = queued(section->window, section->base_rtt_us, section->rtt_us) / PACKET;
		section->rounds++;
	}
	round_begin(round, tp);
}

static __always_inline void begin(struct sock *sk)
{
	cubictcp_init(sk);
	round_begin(&STATE_OF(sk, struct connection)->round, tcp_sk(sk));
}

static __always_inline __u32 reduce(struct sock *sk, __u32 window)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct section *section = section_of(sk);
	__u32 current = tp->snd_cwnd;
	__u32 threshold;

	if (section)
		section->losses++;
	/* CUBIC reads the window from the connection; the kernel does not use it before this call returns. */
	tp->snd_cwnd = resume_reduce(sk, window);
	threshold = cubictcp_recalc_ssthresh(sk);
	tp->snd_cwnd = current;
	return resume_limited(sk, threshold);
}

SEC("struct_ops")
void BPF_PROG(cubicresume_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	detect_omitted_calls(sk);
	if (resume_allows_growth(sk))
		cubictcp_cong_avoid(sk, ack, acked);
	record_state(sk);
	report_round(sk, ack);
}

SEC("struct_ops")
void BPF_PROG(cubicresume_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	detect_omitted_calls(sk);
	resume_acked(sk);
	cubictcp_acked(sk, sample);
	record_state(sk);
	round_sample(&STATE_OF(sk, struct connection)->round, sample->rtt_us);
}

SEC("struct_ops")
void BPF_PROG(cubicresume_set_state, struct sock *sk, __u8 state)
{
	struct section *section;

	detect_omitted_calls(sk);
	cubictcp_state(sk, state);
	section = state == TCP_CA_Loss ? section_of(sk) : 0;
	if (section)
		section->timeouts++;
}

/* A reduction for a spurious loss is undone, but not Safe Retreat. */
SEC("struct_ops")
__u32 BPF_PROG(cubicresume_undo_cwnd, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	detect_omitted_calls(sk);
	if (is_retreating(sk))
		return tp->snd_cwnd;
	return smaller(larger(tp->snd_cwnd, tp->prior_cwnd), STATE_OF(sk, struct last_values)->max_window);
}

SEC("struct_ops")
__u32 BPF_PROG(cubicresume_min_tso_segs, struct sock *sk)
{
	resume_hold_pace(sk);
	return MIN_TSO_SEGS;
}

static __always_inline void start_transmission(struct sock *sk)
{
	detect_omitted_calls(sk);
	resume_transmission(sk);
	record_state(sk);
}

SEC("struct_ops")
void BPF_PROG(cubicresume_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	cubictcp_cwnd_event(sk, event);
	if (IS_EVENT(event, CA_EVENT_TX_START))
		start_transmission(sk);
}

SEC("struct_ops")
void BPF_PROG(cubicresume_cwnd_event_tx_start, struct sock *sk)
{
	cubictcp_cwnd_event_tx_start(sk);
	start_transmission(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops cubicresume = {
	.name = "cubicresume",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)cc_init,
	.ssthresh = (void *)cc_ssthresh,
	.cong_avoid = (void *)cubicresume_cong_avoid,
	.set_state = (void *)cubicresume_set_state,
	.cwnd_event = (void *)cubicresume_cwnd_event,
	.pkts_acked = (void *)cubicresume_pkts_acked,
	.min_tso_segs = (void *)cubicresume_min_tso_segs,
	.undo_cwnd = (void *)cubicresume_undo_cwnd,
};

SEC(".struct_ops.link")
struct tcp_congestion_ops cubicresume_7_1 = {
	.name = "cubicresume",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)cc_init,
	.ssthresh = (void *)cc_ssthresh,
	.cong_avoid = (void *)cubicresume_cong_avoid,
	.set_state = (void *)cubicresume_set_state,
	.cwnd_event_tx_start = (void *)cubicresume_cwnd_event_tx_start,
	.pkts_acked = (void *)cubicresume_pkts_acked,
	.min_tso_segs = (void *)cubicresume_min_tso_segs,
	.undo_cwnd = (void *)cubicresume_undo_cwnd,
};
