/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* For tests: arrivals as they are handed in, time included, judged as the real program would. Nothing is sent. */
#include "aqm_kernel.h"

struct level;

static __always_inline bool look(struct __sk_buff *skb, struct level *waiting)
{
	return false;
}

#define disguise(name)
#include "aqm_program.h"

/* What a test hands in, behind what has to look like an Ethernet header. */
struct told_arrival {
	__u64 now;
	__u32 flow;
	__u32 source;
	__u32 bytes;
	__u32 capable;
};

SEC("tc")
int replay(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct queue *queue = bpf_map_lookup_elem(&aqm_queue, &zero);
	union law_state *state = bpf_map_lookup_elem(&aqm_law, &zero);
	struct arrival arrival = {};
	struct told_arrival told;
	enum verdict verdict;

	if (!queue || !state || bpf_skb_load_bytes(skb, ETHERNET, &told, sizeof(told)))
		return VERDICTS;
	arrival.now = told.now;
	arrival.flow = told.flow;
	arrival.source = told.source;
	arrival.bytes = told.bytes;
	arrival.capable = told.capable;
	if (!lock(queue))
		return VERDICTS;
	verdict = decide(queue, state, law_set(&settings.law, told.flow), &arrival, false, 1);
	unlock(queue);
	return verdict;
}
