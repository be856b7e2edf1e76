/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The arithmetic of Westwood+; westwood.bpf.c has the source. */
#ifndef EKIDEN_WESTWOOD_H
#define EKIDEN_WESTWOOD_H

#include "growth.h"

#define WESTWOOD_MIN_SAMPLE_US 50000 /* the least duration of a sample */
#define SECOND_US 1000000

/* One sample of the bandwidth, in 1/1024 packets per second: b = d / t. With fewer than 2^24 packets the product stays below
 * 2^54. */
static __always_inline __u64 westwood_sample(__u32 delivered, __u32 us)
{
	return (__u64)delivered * SECOND_US * PACKET / (us ? us : 1);
}

/* The filter: 7/8 of the former estimate and 1/8 of the sample. The first sample is the first estimate. */
static __always_inline __u64 westwood_filter(__u64 bandwidth, __u64 sample)
{
	return bandwidth ? (7 * bandwidth + sample) / 8 : sample;
}

/* The bandwidth-delay product without queues, in packets. The bandwidth is limited to 2^38 (268 million packets per second)
 * and the RTT to 2^21 us (2 s), so that the window stays below 2^30. */
static __always_inline __u32 westwood_window(__u64 bandwidth, __u32 base_us)
{
	__u64 most = 1ULL << 38;
	__u64 base = base_us >> 21 ? 1 << 21 : base_us;

	return at_least_two((bandwidth > most ? most : bandwidth) * base / SECOND_US / PACKET);
}

#endif
