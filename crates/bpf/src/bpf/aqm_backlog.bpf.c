/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Queue management by the real backlog of the queueing discipline of the interface. */
#include "aqm.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct qdisc_skb_head {
	__u32 qlen;
};

struct gnet_stats_queue {
	__u32 backlog;
};

struct Qdisc {
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
};

struct net_device {
	struct Qdisc *qdisc; /* the root */
};

struct sk_buff {
	struct net_device *dev;
};

#pragma clang attribute pop

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

/* Without a lock: a value that changes during the read is as good as the one before or after it. */
static __always_inline bool look(struct __sk_buff *skb, struct level *waiting)
{
	struct sk_buff *packet = bpf_cast_to_kern_ctx(skb);
	struct Qdisc *root = packet->dev->qdisc;

	waiting->bytes = root->qstats.backlog;
	waiting->packets = root->q.qlen;
	return true;
}

#define disguise(name)
#include "aqm_program.h"

SEC("tc")
int ekiden_aqm(struct __sk_buff *skb)
{
	return manage(skb);
}
