/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Queue management by a virtual queue, for kernels without BTF as well. */
#include "aqm_kernel.h"

struct level;

static __always_inline bool look(struct __sk_buff *skb, struct level *waiting)
{
	return false;
}

#define disguise(name)
#include "aqm_program.h"

SEC("tc")
int ekiden_aqm(struct __sk_buff *skb)
{
	return manage(skb);
}
