/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Careful Resume (resume.h) in a congestion control: the storage of requests and states, and the hooks. A congestion control
 * calls the hooks between `detect_omitted_calls` and `record_state`, because they change the window.
 *
 * The storage is separate from that of cc.h: only connections with a request have one, connections do not inherit it from
 * their listener, and the layout of telemetry does not depend on it.
 */
#ifndef EKIDEN_RESUME_SOCKET_H
#define EKIDEN_RESUME_SOCKET_H

#include "cc.h"
#include "resume.h"

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct resume);
} resumes SEC(".maps");

/* Null without a request for this connection. */
static __always_inline struct resume *resume_of(struct sock *sk)
{
	return bpf_sk_storage_get(&resumes, sk, 0, 0);
}

static __always_inline struct flow flow_of(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return (struct flow){
		.now_us = tp->tcp_mstamp,
		.max_rate = sk->sk_max_pacing_rate,
		.rtt_us = tp->srtt_us >> 3,
		.mss = tp->mss_cache,
		.window = tp->snd_cwnd,
		.flight = tp->packets_out - tp->sacked_out,
		.delivered = tp->delivered,
		.retransmitted = tp->total_retrans,
		.una = tp->snd_una,
		.nxt = tp->snd_nxt,
	};
}

/* CA_EVENT_TX_START: the first packet of a transmission with nothing else in flight has been sent. The kernel reads the window
 * and the pacing rate again for the second packet. */
static __always_inline void resume_transmission(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct resume *resume = resume_of(sk);
	struct flow flow = flow_of(sk);
	__u32 window = resume ? resume_start(resume, &flow) : 0;

	if (!window)
		return;
	tp->snd_cwnd = smaller(window, tp->snd_cwnd_clamp);
	sk->sk_pacing_rate = resume_rate(resume, &flow);
	pace(sk);
}

/* `min_tso_segs`: the kernel is about to send. It sets the pacing rate at each packet of the peer to that of slow start, which
 * is twice as high. */
static __always_inline void resume_hold_pace(struct sock *sk)
{
	struct resume *resume = resume_of(sk);
	struct flow flow;

	if (!resume || resume->phase != RESUME_UNVALIDATED)
		return;
	flow = flow_of(sk);
	sk->sk_pacing_rate = resume_rate(resume, &flow);
}

/* `pkts_acked` */
static __always_inline void resume_acked(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct resume *resume = resume_of(sk);
	struct flow flow = flow_of(sk);
	__u32 window = resume ? resume_on_ack(resume, &flow) : 0;

	if (window)
		tp->snd_cwnd = smaller(window, tp->snd_cwnd);
	if (resume)
		tp->snd_ssthresh = resume_follow(resume, tp->snd_ssthresh);
}

/* `ssthresh`, before that of the congestion control. Returns the window at the loss for the congestion control. */
static __always_inline __u32 resume_reduce(struct sock *sk, __u32 window)
{
	struct resume *resume = resume_of(sk);
	struct flow flow = flow_of(sk);

	if (!resume)
		return window;
	resume_on_congestion(resume, &flow);
	return resume_proven(resume, window);
}

static __always_inline bool is_retreating(struct sock *sk)
{
	struct resume *resume = resume_of(sk);

	return resume && resume->phase == RESUME_RETREATING;
}

/* `ssthresh`, after that of the congestion control. */
static __always_inline __u32 resume_limited(struct sock *sk, __u32 threshold)
{
	struct resume *resume = resume_of(sk);

	return resume ? resume_limit(resume, threshold) : threshold;
}

/* `cong_avoid`: whether the window may grow. */
static __always_inline bool resume_allows_growth(struct sock *sk)
{
	bool in_loss = BPF_CORE_READ_BITFIELD(inet_csk(sk), icsk_ca_state) == TCP_CA_Loss;
	struct resume *resume = resume_of(sk);
	struct flow flow = flow_of(sk);
	__u32 threshold = resume ? resume_leave_retreat(resume, &flow) : 0;

	if (threshold)
		tcp_sk(sk)->snd_ssthresh = threshold;
	return !resume || resume_can_grow(resume, in_loss);
}

#endif
