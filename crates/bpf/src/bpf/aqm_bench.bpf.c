/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* For measurements: the real program, with each packet as of another connection, and what that costs by itself. */
#include "aqm_packet.h"

static __always_inline bool look(struct __sk_buff *skb, struct level *waiting)
{
	return false;
}

const volatile __u64 connections SEC(".rodata.bench"); /* below 2^32 */

__u64 drawn;

/* Connections come in no order that a processor could learn. */
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
