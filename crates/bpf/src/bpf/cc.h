/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Code of all congestion controls in this directory. First the parameters and the telemetry of one connection, which user
 * space sets and reads by the connection's file descriptor (socket storage, bpf(2) BPF_MAP_LOOKUP_ELEM). Then the common
 * steps of the algorithms. The kernel has these too, but the functions that it exports to programs (`tcp_slow_start`,
 * `tcp_cong_avoid_ai`) may disappear in any release.
 *
 * Names: the algorithm NAME is the struct_ops map `NAME`. An algorithm that handles the first transmission after an idle
 * time has a second map `NAME_7_1` with the same `.name` for Linux 7.1 and later, where `tcp_congestion_ops` has a member
 * `cwnd_event_tx_start`. The loader creates only the map that matches the kernel (`set_autocreate(false)`).
 */
#ifndef EKIDEN_CC_H
#define EKIDEN_CC_H

#include "kernel.h"

#define TCP_CONG_NON_RESTRICTED 1 /* usable without CAP_NET_ADMIN */
#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1 /* pace without an fq queueing discipline */

#define NO_RTT 0xffffffff

/* The layout is that of `Section` in congestion/telemetry.rs. Zero means the default of a parameter, and an unknown value
 * in telemetry. */
struct section {
	/* Parameters. */
	__u32 gamma;      /* packets in the queue that count as congestion (ctcp) */
	__u32 auto_gamma; /* not 0: gamma follows the connection's own share of the queue (ctcp) */
	/* Telemetry, updated once per round trip. */
	__u32 window;       /* packets */
	__u32 loss_window;  /* packets; ctcp's cwnd */
	__u32 delay_window; /* packets; ctcp's dwnd */
	__u32 base_rtt_us;
	__u32 rtt_us;
	__u32 queued; /* estimated packets of this connection in the queues of the path */
	__u32 gamma_now;
	__u32 rounds;
	__u32 losses; /* reductions for loss or a mark */
	__u32 timeouts;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct section);
} sections SEC(".maps");

static __always_inline struct section *section_of(struct sock *sk)
{
	return bpf_sk_storage_get(&sections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
}

/* The state of the algorithm for one connection, in the 104 bytes that the kernel provides, initially zero. */
#define STATE_OF(sk, type)                                                                                     \
	({                                                                                                     \
		_Static_assert(sizeof(type) <= sizeof(((struct inet_connection_sock *)0)->icsk_ca_priv), #type); \
		(type *)inet_csk(sk)->icsk_ca_priv;                                                            \
	})

/* Enables pacing by the kernel, unless an fq queueing discipline paces already. */
static __always_inline void pace(struct sock *sk)
{
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

static __always_inline bool in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

/* Whether the window limits the connection. Otherwise it must not grow (RFC 7661). In slow start, half of the window in use is
 * enough. */
static __always_inline bool is_window_limited(const struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return true;
	return in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

/* Adds one packet per acknowledged packet, up to ssthresh (RFC 5681, 3.1). Returns the part of `acked` beyond ssthresh. */
static __always_inline __u32 slow_start(struct tcp_sock *tp, __u32 acked)
{
	__u32 window = smaller(tp->snd_cwnd + acked, tp->snd_ssthresh);

	acked -= window - tp->snd_cwnd;
	tp->snd_cwnd = smaller(window, tp->snd_cwnd_clamp);
	return acked;
}

/* Adds one packet per `per` acknowledged packets. If `per` is the window, that is one packet per round trip. */
static __always_inline void additive_increase(struct tcp_sock *tp, __u32 per, __u32 acked)
{
	__u32 count = tp->snd_cwnd_cnt + acked;

	per = larger(per, 1);
	tp->snd_cwnd_cnt = count % per;
	tp->snd_cwnd = smaller(tp->snd_cwnd + count / per, tp->snd_cwnd_clamp);
}

/* One round trip. It ends with the first acknowledgement of data that was sent after its start. */
struct round {
	__u32 end;    /* snd_nxt at its start */
	__u32 rtt_us; /* the smallest sample, or NO_RTT */
	__u32 samples;
};

static __always_inline void round_begin(struct round *round, const struct tcp_sock *tp)
{
	round->end = tp->snd_nxt;
	round->rtt_us = NO_RTT;
	round->samples = 0;
}

static __always_inline bool round_is_over(const struct round *round, __u32 ack)
{
	return before(round->end, ack);
}

/* Adds a sample of the kernel; a value that is not positive means no sample. */
static __always_inline void round_sample(struct round *round, __s32 rtt_us)
{
	if (rtt_us <= 0)
		return;
	round->rtt_us = smaller(round->rtt_us, rtt_us);
	round->samples++;
}

#endif
