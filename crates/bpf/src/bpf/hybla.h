/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The arithmetic of Hybla; hybla.bpf.c says where it is from. */
#ifndef EKIDEN_HYBLA_H
#define EKIDEN_HYBLA_H

#include "growth.h"

#define HYBLA_RTT0_US 25000             /* the connection to be as fast as */
#define HYBLA_MOST (64 * PACKET)        /* of rho: 1.6 s */
#define HYBLA_MOST_DOUBLED (4 * PACKET) /* of rho in slow start: 16 times the window in a round trip */

/* rho in 1/1024: how many times as long as RTT0 the RTT is, and never less than once. */
static __always_inline __u32 hybla_rho(__u32 rtt_us)
{
	__u64 rho = (__u64)rtt_us * PACKET / HYBLA_RTT0_US;

	if (rho < PACKET)
		return PACKET;
	return rho > HYBLA_MOST ? HYBLA_MOST : rho;
}

/* 2^rho - 1 packets for each packet acknowledged, in 1/1024. Between whole powers 2^f is 1 + (0.656 + 0.344 f) f, to
 * 0.3 %. */
static __always_inline __u32 hybla_slow_start(__u32 rho)
{
	__u32 capped = rho > HYBLA_MOST_DOUBLED ? HYBLA_MOST_DOUBLED : rho;
	__u32 f = capped % PACKET;

	return ((PACKET + (672 + 352 * f / PACKET) * f / PACKET) << capped / PACKET) - PACKET;
}

/* rho^2 packets in a round trip, in 1/1024. */
static __always_inline __u32 hybla_increase(__u32 rho)
{
	return (__u64)rho * rho / PACKET;
}

/* Grows the window by one acknowledgement; slow start goes no further than `threshold`. */
static __always_inline void hybla_grow(struct growth *growth, __u32 threshold, __u32 rho, __u32 acked)
{
	if (growth->window >= threshold) {
		grow_by_round(growth, hybla_increase(rho), acked);
		return;
	}
	grow_by_packet(growth, hybla_slow_start(rho), acked);
	if (growth->window > threshold)
		growth->window = threshold;
}

/* Does a round trip of `rtt_us` or more show a queue? By an eighth, and by more than timers and interrupts explain. */
static __always_inline bool hybla_sees_queue(__u32 base_us, __u32 rtt_us)
{
	__u32 eighth = base_us / 8;

	return base_us && rtt_us > base_us + (eighth < 4000 ? 4000 : eighth);
}

#endif
