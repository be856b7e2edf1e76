/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The kernel's CUBIC (RFC 9438), which can begin to send with a window that a program remembers: Careful Resume, RFC 9959.
 * resume.h has the phases and the table of differences. A connection without a request is one of CUBIC, but for
 * tcp_min_tso_segs, which is always 2.
 *
 * CUBIC remembers the window of a loss as its next goal (W_max). In Safe Retreat that is PipeSize: the window of the jump
 * was never proven.
 */
#include "cubic.h"
#include "mend.h"
#include "resume_socket.h"

char _license[] SEC("license") = "Dual MIT/GPL";

#define MIN_TSO_SEGS 2 /* the default of tcp_min_tso_segs */

struct connection {
	struct kept kept;
	struct round round;
};

/* Once a round trip. */
static __always_inline void tell(struct sock *sk, __u32 ack)
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
	/* CUBIC takes the window from the connection, and the kernel does without it until it has this answer. */
	tp->snd_cwnd = resume_reduce(sk, window);
	threshold = cubictcp_recalc_ssthresh(sk);
	tp->snd_cwnd = current;
	return resume_limited(sk, threshold);
}

SEC("struct_ops")
void BPF_PROG(cubicresume_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	mend(sk);
	if (resume_allows_growth(sk))
		cubictcp_cong_avoid(sk, ack, acked);
	keep(sk);
	tell(sk, ack);
}

SEC("struct_ops")
void BPF_PROG(cubicresume_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	mend(sk);
	resume_acked(sk);
	cubictcp_acked(sk, sample);
	keep(sk);
	round_sample(&STATE_OF(sk, struct connection)->round, sample->rtt_us);
}

SEC("struct_ops")
void BPF_PROG(cubicresume_set_state, struct sock *sk, __u8 state)
{
	struct section *section;

	mend(sk);
	cubictcp_state(sk, state);
	section = state == TCP_CA_Loss ? section_of(sk) : 0;
	if (section)
		section->timeouts++;
}

/* A reduction without a loss is undone, but not a retreat. */
SEC("struct_ops")
__u32 BPF_PROG(cubicresume_undo_cwnd, struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	mend(sk);
	if (is_retreating(sk))
		return tp->snd_cwnd;
	return smaller(larger(tp->snd_cwnd, tp->prior_cwnd), STATE_OF(sk, struct kept)->most);
}

SEC("struct_ops")
__u32 BPF_PROG(cubicresume_min_tso_segs, struct sock *sk)
{
	resume_hold_pace(sk);
	return MIN_TSO_SEGS;
}

static __always_inline void start_transmission(struct sock *sk)
{
	mend(sk);
	resume_transmission(sk);
	keep(sk);
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
	.init = (void *)kept_init,
	.ssthresh = (void *)kept_ssthresh,
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
	.init = (void *)kept_init,
	.ssthresh = (void *)kept_ssthresh,
	.cong_avoid = (void *)cubicresume_cong_avoid,
	.set_state = (void *)cubicresume_set_state,
	.cwnd_event_tx_start = (void *)cubicresume_cwnd_event_tx_start,
	.pkts_acked = (void *)cubicresume_pkts_acked,
	.min_tso_segs = (void *)cubicresume_min_tso_segs,
	.undo_cwnd = (void *)cubicresume_undo_cwnd,
};
