/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What every congestion control here shares: what a program outside may ask of one connection, and what it may read of
 * it, by the connection's file descriptor (socket storage, bpf(2) BPF_MAP_LOOKUP_ELEM).
 */
#ifndef EKIDEN_CC_H
#define EKIDEN_CC_H

#include "kernel.h"

#define TCP_CONG_NON_RESTRICTED 1 /* to be chosen without CAP_NET_ADMIN */
#define SK_PACING_NEEDED 1        /* pace without an fq queueing discipline */

/* The layout is that of `Section` in congestion/telemetry.rs. Zero is "as the algorithm likes" and "not known". */
struct section {
	/* What is asked for. */
	__u32 gamma;      /* packets in the queue that count as congestion (ctcp) */
	__u32 auto_gamma; /* not 0: gamma follows the connection's own share of the queue (ctcp) */
	/* What is told, once a round trip. */
	__u32 window;       /* packets */
	__u32 loss_window;  /* packets; ctcp's cwnd */
	__u32 delay_window; /* packets; ctcp's dwnd */
	__u32 base_rtt_us;
	__u32 rtt_us;
	__u32 queued; /* packets of this connection in the path's queues, as estimated */
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

#endif
