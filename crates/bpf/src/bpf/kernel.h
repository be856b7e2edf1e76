/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The types of the kernel, reduced to the fields in use. With `preserve_access_index`, libbpf looks up the offsets of the
 * fields in the running kernel, so neither order nor size matters here, and a field that the kernel does not have is an
 * error at load time instead of a wrong read.
 */
#ifndef EKIDEN_KERNEL_H
#define EKIDEN_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed int __s32;
typedef signed long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

/* From the kernel's uapi/linux/bpf.h; these numbers never change. */
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_SK_STORAGE 24
#define BPF_F_NO_PREALLOC 1
#define BPF_F_CLONE (1 << 9)
#define BPF_SK_STORAGE_GET_F_CREATE 1

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock_common {
	unsigned char skc_state;
};

struct sock {
	struct sock_common __sk_common;
	unsigned long sk_pacing_rate; /* bytes per second */
	unsigned long sk_max_pacing_rate; /* SO_MAX_PACING_RATE */
	__u32 sk_pacing_status;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	__u8 icsk_ca_state : 5;
	__u64 icsk_ca_priv[13];
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 snd_cwnd;     /* packets */
	__u32 snd_cwnd_cnt; /* packets acknowledged since the window last grew */
	__u32 snd_ssthresh; /* packets */
	__u32 snd_cwnd_clamp;
	__u32 snd_cwnd_stamp;
	__u32 prior_cwnd;
	__u32 max_packets_out;
	__u32 packets_out;
	__u32 sacked_out;
	__u32 total_retrans; /* packets in the life of the connection */
	__u32 srtt_us; /* eight times the smoothed RTT */
	__u32 mss_cache;
	__u32 delivered;
	__u64 tcp_mstamp; /* us */
	struct minmax rtt_min;
	__u8 is_cwnd_limited : 1;
};

struct ack_sample {
	__u32 pkts_acked;
	__s32 rtt_us; /* negative: no sample */
	__u32 in_flight;
};

struct rate_sample {
	__u32 delivered;
};

/* The values of `icsk_ca_state`, and of the argument of `set_state`. */
enum tcp_ca_state {
	TCP_CA_Open,
	TCP_CA_Disorder,
	TCP_CA_CWR,
	TCP_CA_Recovery,
	TCP_CA_Loss,
};

/* The numbers depend on the kernel version: compare with IS_EVENT. */
enum tcp_ca_event {
	CA_EVENT_TX_START,
	CA_EVENT_CWND_RESTART,
	CA_EVENT_COMPLETE_CWR,
	CA_EVENT_LOSS,
	CA_EVENT_ECN_NO_CE,
	CA_EVENT_ECN_IS_CE,
};

struct tcp_congestion_ops {
	char name[16];
	__u32 flags;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	void (*set_state)(struct sock *sk, __u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event ev);
	/* Called in place of cwnd_event for CA_EVENT_TX_START, from Linux 7.1 on. */
	void (*cwnd_event_tx_start)(struct sock *sk);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	__u32 (*undo_cwnd)(struct sock *sk);
	__u32 (*min_tso_segs)(struct sock *sk);
};

#pragma clang attribute pop

static __always_inline struct inet_connection_sock *inet_csk(const struct sock *sk)
{
	return (struct inet_connection_sock *)sk;
}

static __always_inline struct tcp_sock *tcp_sk(const struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

/* Whether `event` is the event `name` of the running kernel; false if the kernel has no such event. */
#define IS_EVENT(event, name)                                                                                  \
	(bpf_core_enum_value_exists(enum tcp_ca_event, name) && (event) == bpf_core_enum_value(enum tcp_ca_event, name))

/* Compares sequence numbers, which wrap around. */
static __always_inline bool before(__u32 first, __u32 second)
{
	return (__s32)(first - second) < 0;
}

static __always_inline __u32 smaller(__u32 a, __u32 b)
{
	return a < b ? a : b;
}

static __always_inline __u32 larger(__u32 a, __u32 b)
{
	return a > b ? a : b;
}

#endif
