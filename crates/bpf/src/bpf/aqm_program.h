/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The tc program of `ekiden aqm`: passes, marks or drops each packet that an interface is about to send.
 *
 * The including file defines `look(skb, &level)`, which reads the backlog and returns whether there is a real queue, and
 * `disguise(&name)`, with which a test changes the connection of the packet.
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
	__u64 key;  /* secret of the hash of connections */
	__u64 sets; /* size of the table of connections; a power of two */
	__u64 sample; /* sampling interval of the table, in bytes */
	__u64 ethernet; /* whether the interface has Ethernet headers */
	char told[1024]; /* the settings as JSON, for `show` */
};

const volatile struct settings settings SEC(".rodata.settings");

/* Every packet counts in one of `own`, `other` and `verdicts`. */
struct counters {
	__u64 own;   /* passed: from sockets of this host */
	__u64 other; /* passed: not IP */
	__u64 verdicts[VERDICTS];
	__u64 segments; /* passed packets; a superpacket counts as its segments */
	__u64 bytes;	/* passed */
	__u64 waited;	/* sum of the backlogs at all packets, in bytes */
	__u64 waiting;	/* backlog at the last packet, in bytes */
	__u64 missed;	/* passed: the queue was locked for too long */
};

struct queue {
	__u64 locked;
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
 * A spin lock. That of the kernel takes 55 ns, this one 5 ns (docs/aqm.md). The critical section is short and calls no
 * helper. No other packet interrupts it, because egress programs do not nest on one processor.
 */
#define TRIES 256

static __always_inline bool lock(struct queue *queue)
{
	for (int i = 0; i < TRIES; i++) {
		if (!__sync_val_compare_and_swap(&queue->locked, 0, 1))
			return true;
	}
	return false;
}

static __always_inline void unlock(struct queue *queue)
{
	__sync_lock_test_and_set(&queue->locked, 0);
}

/*
 * Bytes per connection, for `show`; no decision depends on them. A set is one cache line, the only memory that a packet
 * touches here; the names are in another map and written once per connection. Processors write without a lock: a race
 * miscounts a packet in `show`.
 *
 * With many connections that line is never in a cache. Therefore packets smaller than `sample` are sampled and count as
 * `sample` bytes: all packets of a slow link, and at most 100,000 per second of a fast one.
 */
struct slot {
	__u32 flow;
	__u32 last;  /* in 2^20 ns; 0: free */
	__u32 bytes; /* passed; wraps */
	__u32 hit;   /* bytes marked or dropped; wraps */
};

#define WAYS 4

struct set {
	struct slot slots[WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* page-aligned, so that a set is one cache line */
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct set);
} aqm_slots SEC(".maps");

struct names {
	struct name names[WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct names);
} aqm_names SEC(".maps");

/* Returns the way of a connection, or else the least recently used one. */
static __always_inline __u32 find_way(const struct set *set, __u32 flow)
{
	__u32 stalest = 0;

	for (__u32 way = 0; way < WAYS; way++) {
		if (set->slots[way].flow == flow && set->slots[way].last)
			return way;
		if (set->slots[way].last < set->slots[stalest].last)
			stalest = way;
	}
	return stalest;
}

static __always_inline void take(struct slot *slot, __u32 index, __u32 way, __u32 flow, const struct name *name)
{
	struct names *names = bpf_map_lookup_elem(&aqm_names, &index);

	if (names)
		names->names[way] = *name;
	slot->flow = flow;
	slot->bytes = 0;
	slot->hit = 0;
}

/* Returns the bytes that a packet counts as; 0 for packets that are not sampled. */
static __always_inline __u32 sampled(const struct arrival *arrival)
{
	__u64 random = random_bits(settings.key, arrival->number) >> 32;

	if (arrival->bytes >= settings.sample)
		return arrival->bytes;
	return random * settings.sample >> 32 < arrival->bytes ? settings.sample : 0;
}

static __always_inline void account(const struct name *name, const struct arrival *arrival, enum verdict verdict)
{
	__u32 way, index = arrival->flow & (settings.sets - 1);
	struct set *set = bpf_map_lookup_elem(&aqm_slots, &index);
	__u32 bytes = sampled(arrival);
	struct slot *slot;

	if (!set || !bytes)
		return;
	way = find_way(set, arrival->flow) % WAYS;
	slot = &set->slots[way];
	if (slot->flow != arrival->flow || !slot->last)
		take(slot, index, way, arrival->flow, name);
	slot->last = (arrival->now >> 20) + 1;
	if (verdict <= MARK)
		slot->bytes += bytes;
	if (verdict != PASS)
		slot->hit += bytes;
}

/* Updates the virtual queue, and sets the backlog of the arrival: of the real queue if there is one. */
static __always_inline void meet(struct queue *queue, struct arrival *arrival, bool real)
{
	struct level waiting = arrival->waiting;

	if (arrival->now < queue->line.at)
		arrival->now = queue->line.at; /* another processor has read the clock later and locked first */
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

static __always_inline enum verdict decide(struct queue *queue, union law_state *state, struct auto_set *set,
					   struct arrival *arrival, bool real, __u32 segments)
{
	enum verdict verdict;

	meet(queue, arrival, real);
	arrival->number = queue->number++;
	verdict = law_judge(&settings.law, state, set, arrival);
	queue->counters.verdicts[verdict]++;
	if (verdict <= MARK) {
		virtual_admit(&queue->line, arrival->bytes);
		count(&queue->counters, arrival, segments);
	}
	return verdict;
}

/*
 * Packets without a verdict use the link as well. They pass at any backlog, so they fill the virtual queue only up to the
 * limit: otherwise traffic of this host could block all other traffic permanently.
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
	struct found found = {};
	__u32 zero = 0, segments = skb->gso_segs;
	bool own = skb->sk && !skb->ingress_ifindex;
	bool judged = !own && read_packet(skb, &found, settings.ethernet);
	bool real = look(skb, &arrival.waiting);
	struct queue *queue = bpf_map_lookup_elem(&aqm_queue, &zero);
	union law_state *state = bpf_map_lookup_elem(&aqm_law, &zero);
	enum verdict verdict = PASS;
	struct auto_set *set;

	if (!queue || !state)
		return TC_ACT_UNSPEC;
	if (judged) {
		disguise(&found.name);
		arrival.capable = found.capable;
		arrival.flow = hash(&found.name, settings.key);
		arrival.source = settings.law.mode == MODE_STATIC ? source(&found.name.source) : 0;
	}
	set = law_set(&settings.law, arrival.flow);
	if (set)
		set->touched = 1;
	arrival.now = bpf_ktime_get_ns();
	if (!lock(queue)) {
		__sync_fetch_and_add(&queue->counters.missed, 1);
		return TC_ACT_UNSPEC;
	}
	if (judged)
		verdict = decide(queue, state, set, &arrival, real, segments);
	else
		let_through(queue, &arrival, own, real, segments);
	unlock(queue);
	if (!judged)
		return TC_ACT_UNSPEC;
	if (verdict == MARK)
		bpf_skb_ecn_set_ce(skb);
	account(&found.name, &arrival, verdict);
	return verdict <= MARK ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

#endif
