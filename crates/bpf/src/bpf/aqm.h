/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Queue management in integer arithmetic: crates/proto/src/aqm, line by line, which has the documentation. The names are the
 * same, prefixed with the module. A test replays the same arrivals on both (tests/aqm.rs).
 */
#ifndef EKIDEN_AQM_H
#define EKIDEN_AQM_H

#include "aqm_kernel.h"

/* mod.rs */

struct level {
	__u64 bytes;
	__u64 packets;
};

struct arrival {
	__u64 now;
	__u64 number;
	struct level waiting;
	__u64 idle;
	__u32 flow;
	__u32 source;
	__u32 bytes;
	__u32 capable;
};

/* `Verdict` and `Why` combined. */
enum verdict {
	PASS,
	MARK,
	DROP_FULL,
	DROP_EARLY,
	DROP_FORCED,
	VERDICTS,
};

struct room {
	__u64 limit;
	__u64 in_bytes;
};

static __always_inline __u64 room_level(const volatile struct room *room, const struct level *waiting)
{
	return room->in_bytes ? waiting->bytes : waiting->packets;
}

static __always_inline bool room_fits(const volatile struct room *room, const struct arrival *arrival)
{
	__u64 size = room->in_bytes ? arrival->bytes : 1;

	return room_level(room, &arrival->waiting) + size <= room->limit;
}

/* mod.rs: random numbers */

#define GOLDEN 0x9e3779b97f4a7c15ULL

static __always_inline __u64 mix(__u64 z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static __always_inline __u64 random_bits(__u64 key, __u64 number)
{
	return mix(key ^ mix(number * GOLDEN + key));
}

/* virtual_queue.rs */

#define TYPICAL_PACKET 1500ULL
#define VIRTUAL_FRACTION 32

struct virtual_params {
	__u64 rate;
	__u64 longest;
};

struct virtual_state {
	__u64 level;
	__u64 at;
};

static __always_inline void virtual_meet(const volatile struct virtual_params *params, struct virtual_state *state,
					 struct arrival *arrival)
{
	__u64 passed = arrival->now > state->at ? arrival->now - state->at : 0;
	__u64 drained = passed > params->longest ? ~0ULL : passed * params->rate;

	arrival->idle = 0;
	if (drained >= state->level) {
		arrival->idle = passed - state->level / params->rate;
		state->level = 0;
	} else {
		state->level -= drained;
	}
	state->at += passed;
	arrival->waiting.bytes = state->level >> VIRTUAL_FRACTION;
	arrival->waiting.packets = (arrival->waiting.bytes + TYPICAL_PACKET - 1) / TYPICAL_PACKET;
}

static __always_inline void virtual_admit(struct virtual_state *state, __u32 bytes)
{
	__u64 added = (__u64)bytes << VIRTUAL_FRACTION;

	state->level = state->level + added < added ? ~0ULL : state->level + added;
}

#endif
