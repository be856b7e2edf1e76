/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Windows that grow by fractions of a packet, in integer arithmetic. Without types of the kernel, so that tests can run
 * single steps.
 */
#ifndef EKIDEN_GROWTH_H
#define EKIDEN_GROWTH_H

#include "kernel.h"

/* Increments are in 1/1024 of a packet. */
#define PACKET 1024

struct growth {
	__u32 window; /* packets */
	__u32 part;   /* of one more packet, in 1/2^32 */
};

/* A part is 2^22 times finer than an increment. With increments below 2^22 (4096 packets) and fewer than 2^16 packets
 * in one acknowledgement, which are 94 MB, the product stays below 2^60. */
static __always_inline __u64 parts(__u64 increment, __u32 acked)
{
	return increment * (acked > 0xffff ? 0xffff : acked) << 22;
}

static __always_inline void add(struct growth *growth, __u64 parts)
{
	parts += growth->part;
	growth->window += parts >> 32;
	growth->part = parts;
}

/* Grows the window by `increment` per acknowledged packet. */
static __always_inline void grow_by_packet(struct growth *growth, __u64 increment, __u32 acked)
{
	add(growth, parts(increment, acked));
}

/* Grows the window by `increment` per acknowledged window, that is per round trip. */
static __always_inline void grow_by_round(struct growth *growth, __u64 increment, __u32 acked)
{
	add(growth, parts(increment, acked) / (growth->window ? growth->window : 1));
}

/* Returns how many of `window` packets are in queues, in 1/1024 of a packet, for an RTT of `rtt` on a path whose RTT is `base`
 * with empty queues: at the rate window / rtt, window * base / rtt of them are on the wire (Little's law). With windows below
 * 2^22 packets the product stays below 2^64. */
static __always_inline __u64 queued(__u32 window, __u32 base, __u32 rtt)
{
	return base && base < rtt ? (__u64)window * (rtt - base) * PACKET / rtt : 0;
}

/* RFC 5681: a reduced window has at least two packets. */
static __always_inline __u32 at_least_two(__u32 window)
{
	return window < 2 ? 2 : window;
}

#endif
