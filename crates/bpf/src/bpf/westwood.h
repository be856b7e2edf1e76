/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The arithmetic of Westwood+; westwood.bpf.c says where it is from. */
#ifndef EKIDEN_WESTWOOD_H
#define EKIDEN_WESTWOOD_H

#include "growth.h"

#define WESTWOOD_SHORTEST_US 50000 /* a sample takes no less */
#define SECOND_US 1000000

/* One sample of the bandwidth, in 1/1024 packets per second: b = d / t. With fewer than 2^24 packets it stays below
 * 2^54. */
static __always_inline __u64 westwood_sample(__u32 delivered, __u32 us)
{
	return (__u64)delivered * SECOND_US * PACKET / (us ? us : 1);
}

/* The filter: 7/8 of what was, 1/8 of what is. The first sample is taken as it is. */
static __always_inline __u64 westwood_filter(__u64 bandwidth, __u64 sample)
{
	return bandwidth ? (7 * bandwidth + sample) / 8 : sample;
}

/* What the path holds without its queues, in packets. Bandwidth counts up to 2^38 (268 million packets per second) and
 * the RTT up to 2^21 us (2 s), so that the window stays below 2^30. */
static __always_inline __u32 westwood_window(__u64 bandwidth, __u32 base_us)
{
	__u64 most = 1ULL << 38;
	__u64 base = base_us >> 21 ? 1 << 21 : base_us;

	return at_least_two((bandwidth > most ? most : bandwidth) * base / SECOND_US / PACKET);
}

#endif
