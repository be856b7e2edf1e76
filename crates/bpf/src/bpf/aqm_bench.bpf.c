/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* For benchmarks: the real program with a random connection for each packet, and programs that measure the overhead of this. */
#include "aqm_packet.h"

static __always_inline bool look(struct __sk_buff *skb, struct level *waiting)
{
	return false;
}

const volatile __u64 connections SEC(".rodata.bench"); /* below 2^32 */

__u64 drawn;

/* A random order, so that the processor cannot prefetch. */
static __always_inline __u32 draw(void)
{
	return (mix(drawn++) >> 32) * connections >> 32;
}

static __always_inline void disguise(struct name *name)
{
	name->source.word[3] = draw();
}

#include "aqm_program.h"

SEC("tc")
int ekiden_aqm(struct __sk_buff *skb)
{
	return manage(skb);
}

SEC("tc")
int empty(struct __sk_buff *skb)
{
	return TC_ACT_UNSPEC;
}

SEC("tc")
int only_draw(struct __sk_buff *skb)
{
	return draw();
}
