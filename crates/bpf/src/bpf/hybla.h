/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The arithmetic of Hybla; hybla.bpf.c has the source. */
#ifndef EKIDEN_HYBLA_H
#define EKIDEN_HYBLA_H

#include "growth.h"

#define HYBLA_RTT0_US 25000                   /* RTT of the reference connection */
#define HYBLA_MAX_RHO (64 * PACKET)           /* at an RTT of 1.6 s */
#define HYBLA_MAX_SLOW_START_RHO (4 * PACKET) /* 16 times the window per round trip */

/* rho in 1/1024: the ratio of the RTT to RTT0, at least 1. */
static __always_inline __u32 hybla_rho(__u32 rtt_us)
{
	__u64 rho = (__u64)rtt_us * PACKET / HYBLA_RTT0_US;

	if (rho < PACKET)
		return PACKET;
	return rho > HYBLA_MAX_RHO ? HYBLA_MAX_RHO : rho;
}

/* 2^rho - 1 packets per acknowledged packet, in 1/1024. For the fraction f of rho, 2^f is approximated by
 * 1 + (0.656 + 0.344 f) f, to 0.3 %. */
static __always_inline __u32 hybla_slow_start(__u32 rho)
{
	__u32 capped = rho > HYBLA_MAX_SLOW_START_RHO ? HYBLA_MAX_SLOW_START_RHO : rho;
	__u32 f = capped % PACKET;

	return ((PACKET + (672 + 352 * f / PACKET) * f / PACKET) << capped / PACKET) - PACKET;
}

/* rho^2 packets per round trip, in 1/1024. */
static __always_inline __u32 hybla_increase(__u32 rho)
{
	return (__u64)rho * rho / PACKET;
}

/* Grows the window for one acknowledgement, in slow start up to `threshold`. */
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

/* Whether a smallest RTT of `rtt_us` shows a queue: it exceeds the base RTT by 1/8, and by more than the effect of timers and
 * interrupts. */
static __always_inline bool hybla_sees_queue(__u32 base_us, __u32 rtt_us)
{
	__u32 eighth = base_us / 8;

	return base_us && rtt_us > base_us + (eighth < 4000 ? 4000 : eighth);
}

#endif
