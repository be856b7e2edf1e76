/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The tc program of `ekiden aqm`: what arrives at an interface is let through, marked or dropped.
 *
 * Whoever includes this says where what waits is read: `look(skb, &level)`, whether there is a real queue to ask. A test
 * may have the packet appear as another connection's: `disguise(&name)`.
 */
#ifndef EKIDEN_AQM_PROGRAM_H
#define EKIDEN_AQM_PROGRAM_H

#include "aqm_law.h"
#include "aqm_packet.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* Set before the program is loaded. */
struct settings {
	struct law law;
	struct virtual_params line;
	__u64 key;  /* of the hash of connections */
	__u64 sets; /* of the table of connections; a power of two */
	char told[1024]; /* all of it as JSON, for `show` */
};

const volatile struct settings settings SEC(".rodata.settings");

/* Every packet is in one of `own`, `other` and `verdicts`. */
struct counters {
	__u64 own;   /* of this host's sockets: let through */
	__u64 other; /* not IP: let through */
	__u64 verdicts[VERDICTS];
	__u64 segments; /* packets, with those that superpackets will be cut into */
	__u64 bytes;	/* let through */
	__u64 waited;	/* the sum of what waited before each packet, in bytes */
	__u64 waiting;	/* what waited before the last, in bytes */
};

struct queue {
	struct bpf_spin_lock lock;
	__u32 unused;
	__u64 number;
	struct virtual_state line;
	struct counters counters;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct queue);
} aqm_queue SEC(".maps");

/*
 * Who sends how much, for `show`: no decision is made by it. One cache line for each connection. Processors write here
 * without a lock: what they lose is a packet in a table for the eye.
 */
struct slot {
	__u64 bytes; /* let through */
	__u32 packets;
	__u32 hits;
	__u32 last; /* in 2^20 ns */
	__u32 flow;
	struct name name;
};

#define WAYS 4

struct set {
	struct slot slots[WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct set);
} aqm_slots SEC(".maps");

/* The slot of a connection. It is looked for from where its hash says, so that most are found at once. */
static __always_inline struct slot *find_slot(struct set *set, __u32 flow)
{
	for (__u32 i = 0; i < WAYS; i++) {
		struct slot *slot = &set->slots[(flow + i) % WAYS];

		if (slot->flow == flow && slot->last)
			return slot;
	}
	return 0;
}

/* The slot that was used the longest ago, made this connection's. */
static __always_inline struct slot *take_slot(struct set *set, __u32 flow, const struct name *name)
{
	__u32 start = flow % WAYS;
	struct slot *stalest = &set->slots[start];

	for (__u32 i = 1; i < WAYS; i++) {
		struct slot *slot = &set->slots[(start + i) % WAYS];

		if (slot->last < stalest->last)
			stalest = slot;
	}
	stalest->flow = flow;
	stalest->bytes = 0;
	stalest->packets = 0;
	stalest->hits = 0;
	stalest->name = *name;
	return stalest;
}

static __always_inline void account(const struct name *name, const struct arrival *arrival, enum verdict verdict)
{
	__u32 index = (arrival->flow / WAYS) & (settings.sets - 1);
	struct set *set = bpf_map_lookup_elem(&aqm_slots, &index);
	struct slot *slot;

	if (!set)
		return;
	slot = find_slot(set, arrival->flow);
	if (!slot)
		slot = take_slot(set, arrival->flow, name);
	slot->last = (arrival->now >> 20) + 1;
	if (verdict <= MARK) {
		slot->bytes += arrival->bytes;
		slot->packets++;
	}
	if (verdict != PASS)
		slot->hits++;
}

/* What waits: in the queue that is only counted, unless a real one was asked. */
static __always_inline void meet(struct queue *queue, struct arrival *arrival, bool real)
{
	struct level waiting = arrival->waiting;

	if (arrival->now < queue->line.at)
		arrival->now = queue->line.at; /* another processor was faster with its look at the clock */
	virtual_meet(&settings.line, &queue->line, arrival);
	if (real)
		arrival->waiting = waiting;
	queue->counters.waiting = arrival->waiting.bytes;
	queue->counters.waited += arrival->waiting.bytes;
}

static __always_inline void count(struct counters *counters, const struct arrival *arrival, __u32 segments)
{
	counters->segments += segments ? segments : 1;
	counters->bytes += arrival->bytes;
}

static __always_inline enum verdict decide(struct queue *queue, union law_state *state, struct arrival *arrival,
					   bool real, __u32 segments)
{
	enum verdict verdict;

	meet(queue, arrival, real);
	arrival->number = queue->number++;
	verdict = law_judge(&settings.law, state, arrival);
	queue->counters.verdicts[verdict]++;
	if (verdict <= MARK) {
		virtual_admit(&queue->line, arrival->bytes);
		count(&queue->counters, arrival, segments);
	}
	return verdict;
}

/*
 * What is not judged is on the line nevertheless. It is let through whatever waits, so it fills the counted queue up to
 * the limit at most: beyond it, one host's own traffic would keep everybody else's out for ever.
 */
static __always_inline void let_through(struct queue *queue, struct arrival *arrival, bool own, bool real, __u32 segments)
{
	meet(queue, arrival, real);
	if (own)
		queue->counters.own++;
	else
		queue->counters.other++;
	if (room_fits(law_room(&settings.law), arrival))
		virtual_admit(&queue->line, arrival->bytes);
	count(&queue->counters, arrival, segments);
}

static __always_inline int manage(struct __sk_buff *skb)
{
	struct arrival arrival = { .bytes = skb->wire_len };
	struct name name = {};
	__u32 zero = 0, segments = skb->gso_segs;
	bool own = skb->sk && !skb->ingress_ifindex;
	bool judged = !own && read_packet(skb, &name, &arrival);
	bool real = look(skb, &arrival.waiting);
	struct queue *queue = bpf_map_lookup_elem(&aqm_queue, &zero);
	union law_state *state = bpf_map_lookup_elem(&aqm_law, &zero);
	enum verdict verdict = PASS;

	if (!queue || !state)
		return TC_ACT_UNSPEC;
	if (judged) {
		disguise(&name);
		arrival.flow = hash(&name, settings.key);
		arrival.source = settings.law.mode == MODE_STATIC ? source(&name.source) : 0;
	}
	arrival.now = bpf_ktime_get_ns();
	bpf_spin_lock(&queue->lock);
	if (judged)
		verdict = decide(queue, state, &arrival, real, segments);
	else
		let_through(queue, &arrival, own, real, segments);
	bpf_spin_unlock(&queue->lock);
	if (!judged)
		return TC_ACT_UNSPEC;
	if (verdict == MARK)
		bpf_skb_ecn_set_ce(skb);
	account(&name, &arrival, verdict);
	return verdict <= MARK ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

#endif
