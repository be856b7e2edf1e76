/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * CUBIC of the kernel as functions for BPF programs (kfuncs, registered by net/ipv4/tcp_cubic.c since Linux 5.13), and the
 * state of a congestion control that calls them: CUBIC uses the first part of the 104 bytes. Include this before
 * omitted_calls.h.
 */
#ifndef EKIDEN_CUBIC_H
#define EKIDEN_CUBIC_H

#include "cc.h"

void cubictcp_init(struct sock *sk) __ksym;
void cubictcp_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;
__u32 cubictcp_recalc_ssthresh(struct sock *sk) __ksym;
void cubictcp_state(struct sock *sk, __u8 new_state) __ksym;
void cubictcp_acked(struct sock *sk, const struct ack_sample *sample) __ksym;
/* Linux 7.1 replaces the first by the second. Only the operations for the running kernel are loaded, so no program tests
 * whether a kfunc exists, which the verifier of Linux 6.1 rejects. */
void cubictcp_cwnd_event(struct sock *sk, enum tcp_ca_event event) __ksym __weak;
void cubictcp_cwnd_event_tx_start(struct sock *sk) __ksym __weak;

/* The state of the kernel's CUBIC: 60 bytes in Linux 6.18. */
struct bictcp {
	char hidden;
} __attribute__((preserve_access_index));

#define CUBIC_WORDS 8
#define ALL_WORDS 13

/* If the state of CUBIC is larger, the address is out of bounds and the verifier rejects the program. */
#undef STATE_OF
#define STATE_OF(sk, type)                                                                                             \
	({                                                                                                             \
		_Static_assert(sizeof(type) <= (ALL_WORDS - CUBIC_WORDS) * sizeof(__u64), #type);                      \
		__u32 word = bpf_core_type_size(struct bictcp) <= CUBIC_WORDS * sizeof(__u64) ? CUBIC_WORDS : ALL_WORDS; \
		(type *)&inet_csk(sk)->icsk_ca_priv[word];                                                             \
	})

#endif
