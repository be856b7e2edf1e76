/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The state of `auto` and the fair rate: the first half of auto/mod.rs, table.rs and fair.rs of crates/proto/src/aqm/auto. */
#ifndef EKIDEN_AQM_FAIR_H
#define EKIDEN_AQM_FAIR_H

#include "aqm.h"

#define AUTO_EPOCH (1ULL << 28)
#define AUTO_RECENT (1LL << 29)
#define AUTO_RANGE 6000000000LL
#define AUTO_START 500000000LL
#define AUTO_DEEPEST 1000000000LL
#define AUTO_CLEARANCE 100000000LL
#define AUTO_FAR 1200000000LL
#define AUTO_FORESIGHT 6
#define AUTO_SMOOTH 27
#define AUTO_PATIENCE 600000000ULL
#define AUTO_LONGEST_PATIENCE 1500000000ULL
#define AUTO_RELAX 31
#define AUTO_POLICED 6
#define AUTO_DEAF 3
#define AUTO_LARGEST_PACKET (1 << 17)
#define AUTO_FEW_BYTES 6000
#define AUTO_FASTEST (8ULL * AUTO_RECENT)

struct auto_params {
	struct room room;
	__u64 capacity;
	__u64 byte_time;
	__u64 target;
	__u64 half;
	__u64 ecn;
	__u64 mask;
};

struct auto_state {
	__u64 last;
	__u64 average;
	__s64 bar;
	__u64 pause;
	__u64 epoch;
	__u64 began;
	__u64 busy;
	__u64 active;
	__u64 heavy;
	__u64 light;
	__u64 leads;
	__u64 above;
	__u64 below;
	__s64 highest;
	__s64 highest_before;
	__s64 mean;
	__u64 by_queue;
	__u64 fair;
	__u64 price;
	__u64 portion;
	__u64 crowd;
	__u64 reference;
	__u64 urgent;
};

static __always_inline __u64 at_most(__u64 value, __u64 most)
{
	return value < most ? value : most;
}

static __always_inline __u64 at_least(__u64 value, __u64 least)
{
	return value > least ? value : least;
}

static __always_inline __u64 less(__u64 value, __u64 by)
{
	return value > by ? value - by : 0;
}

static __always_inline __u64 auto_waiting_time(__u64 byte_time, __u64 bytes)
{
	__u64 longest = 1ULL << 52;

	return byte_time && bytes > longest / byte_time ? longest >> 16 : bytes * byte_time >> 16;
}

/* auto/table.rs */

#define AUTO_WAYS 8
#define AUTO_IN_USE (1ULL << 30)

/* One cache line. Therefore the epoch has only 32 bits here, which overflow after 36 years. */
struct auto_slot {
	__s64 lead;
	__u64 recent;
	__u64 seen;
	__u64 hit_at;
	__u64 hit_recent;
	__u64 bytes;
	__u64 rate;
	__u32 epoch;
	__u32 doublings;
};

struct auto_set {
	__u32 tags[AUTO_WAYS];
	__u32 touched; /* written early to prefetch the cache line of the tags */
	__u32 unused[7];
	struct auto_slot slots[AUTO_WAYS];
};

static __always_inline __u64 auto_place(__u32 flow)
{
	return mix(flow) >> 32;
}

/* Compares the tags first, so that slots of other connections are not read. */
static __always_inline __u32 auto_way(const struct auto_set *set, __u32 tag)
{
	__u32 stalest = 0;
	__u64 seen;

	for (__u32 way = 0; way < AUTO_WAYS; way++) {
		if (set->tags[way] == tag)
			return way;
	}
	seen = set->slots[0].seen;
	for (__u32 way = 1; way < AUTO_WAYS; way++) {
		if (set->slots[way].seen < seen) {
			seen = set->slots[way].seen;
			stalest = way;
		}
	}
	return stalest;
}

static __always_inline struct auto_slot *auto_find(struct auto_set *set, const struct arrival *arrival, __s64 lead)
{
	__u32 tag = arrival->flow | 1;
	__u32 way = auto_way(set, tag) % AUTO_WAYS;
	struct auto_slot *slot = &set->slots[way];

	if (set->tags[way] == tag)
		return slot;
	if (!set->tags[way] || less(arrival->now, slot->seen) > AUTO_IN_USE) {
		__builtin_memset(slot, 0, sizeof(*slot));
		slot->lead = lead;
		slot->seen = arrival->now;
	}
	set->tags[way] = tag;
	return slot;
}

/* auto/fair.rs */

#define AUTO_NOBODY (-0x7fffffffffffffffLL - 1)
#define AUTO_FEW 80
#define AUTO_MANY 6
#define AUTO_LONGEST_FOR_FEW 40000000ULL
#define AUTO_URGENT 100000000ULL
#define AUTO_SLOWEST (1ULL << 30)
#define AUTO_LONGEST_EPOCH 100000000ULL
#define AUTO_MICROSECONDS 1000000ULL

static __always_inline void auto_derive(const volatile struct auto_params *params, struct auto_state *state)
{
	__u64 packets, crowded;

	state->fair = at_least(state->fair, 1);
	state->price = (1000000000ULL << 16) / state->fair;
	state->portion = state->fair * 275 >> 10;
	packets = at_most(auto_waiting_time(params->byte_time, TYPICAL_PACKET), AUTO_SLOWEST) * state->crowd >> 8;
	crowded = at_least(at_most(AUTO_FEW * packets, AUTO_LONGEST_FOR_FEW), AUTO_MANY * packets);
	state->reference = at_least(at_most(at_least(params->target, crowded), params->half), 1);
	state->urgent = at_least(at_most(4 * state->reference + AUTO_URGENT, params->half * 3 / 2), 1);
}

static __always_inline void auto_begin(const volatile struct auto_params *params, struct auto_state *state, __u64 now)
{
	state->epoch = 1;
	state->began = state->last = now;
	state->fair = state->by_queue = params->capacity;
	state->crowd = 1 << 8;
	state->highest = state->highest_before = AUTO_NOBODY;
}

static __always_inline void auto_count(struct auto_state *state, struct auto_slot *slot)
{
	if (slot->epoch) {
		state->active++;
		slot->rate = slot->rate ? (slot->rate + slot->bytes) / 2 : slot->bytes;
	}
	if (2 * slot->rate >= state->portion || (slot->hit_at && 10 * slot->rate >= state->portion)) {
		state->heavy++;
		state->leads += slot->lead - state->mean + AUTO_RANGE;
	} else {
		state->light += slot->bytes;
	}
	slot->bytes = 0;
	slot->epoch = state->epoch;
}

static __always_inline void auto_count_busy(const volatile struct auto_params *params, struct auto_state *state)
{
	__u64 equal;

	state->busy++;
	equal = params->capacity / state->busy;
	if (state->average > state->reference && 2 * equal < state->fair) {
		state->fair = state->by_queue = equal;
		state->crowd = state->busy << 8;
		auto_derive(params, state);
	}
}

static __always_inline __u64 auto_by_queue(const struct auto_state *state, __u64 elapsed)
{
	bool above = state->above > state->below;
	__u64 difference = (above ? state->above - state->below : state->below - state->above) / elapsed;
	__u64 change = state->by_queue * at_most(difference, 1 << 10) / (10 << 10);

	return above ? state->by_queue - change : state->by_queue + change;
}

static __always_inline void auto_end_epoch(const volatile struct auto_params *params, struct auto_state *state,
					   __u64 now)
{
	__u64 elapsed = now - state->began;
	__u64 micros = at_most(elapsed / 1000, AUTO_LONGEST_EPOCH);
	__u64 heavy = at_least(state->heavy, 1);
	__u64 least = params->capacity / at_least(state->active, 1);
	__u64 left = less(params->capacity * micros / AUTO_MICROSECONDS, state->light);
	__u64 most = at_most(at_least(left / heavy * AUTO_MICROSECONDS / micros, least), params->capacity);

	state->by_queue = at_most(at_least(auto_by_queue(state, elapsed), least), most);
	if (state->by_queue < state->fair)
		state->fair = state->by_queue;
	else
		state->fair += (state->by_queue - state->fair) / 10;
	state->crowd = (state->crowd + (heavy << 8)) / 2;
	if (state->heavy)
		state->mean += (__s64)(state->leads / state->heavy) - AUTO_RANGE;
	state->busy = state->active = state->heavy = state->light = state->leads = state->above = state->below = 0;
	state->highest_before = state->highest;
	state->highest = AUTO_NOBODY;
	state->epoch++;
	state->began = now;
}

#endif
