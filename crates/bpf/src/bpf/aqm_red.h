/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Random early detection: red.rs of crates/proto/src/aqm, line by line. */
#ifndef EKIDEN_AQM_RED_H
#define EKIDEN_AQM_RED_H

#include "aqm.h"

/* mod.rs */

#define FRACTION 24
#define ONE (1ULL << 32)

static __always_inline __u64 share(__u64 value, __u64 part)
{
	__u64 whole = value >> FRACTION, rest = value & ((1 << FRACTION) - 1);

	return whole * part + (rest * part >> FRACTION);
}

/* red.rs */

#define POWERS 24
#define OTHERS 0
#define HEAVY 1
#define MOST (1ULL << 31)

struct slope {
	__u64 from;
	__u64 base;
	__u64 rise;
	__u64 span;
	__u64 shift;
};

struct red_params {
	__u64 key;
	struct room room;
	__u64 weight;
	__u64 min;
	__u64 max;
	__u64 top;
	struct slope rise;
	struct slope gentle;
	__u64 n;
	__u64 ecn;
	__u64 typical_time;
	__u64 keep[POWERS];
};

struct red_state {
	__u64 average;
	__u64 left;
	__u64 count[2];
};

static __always_inline __u64 slope_at(const volatile struct slope *slope, __u64 average)
{
	return slope->base + ((average - slope->from) >> slope->shift) * slope->rise / slope->span;
}

/* The average is updated in the map: the verifier does not track values in maps, so it verifies 24 branches and not 2^24. */
static __always_inline void red_decay(const volatile struct red_params *params, struct red_state *state, __u64 packets)
{
	volatile __u64 *average = &state->average;

	if (packets >> POWERS) {
		*average = 0;
		return;
	}
	for (int power = 0; power < POWERS && packets >> power; power++) {
		if (packets >> power & 1)
			*average = share(*average, params->keep[power]);
	}
}

static __always_inline void red_update_average(const volatile struct red_params *params, struct red_state *state,
					       const struct arrival *arrival)
{
	__u64 level = room_level(&params->room, &arrival->waiting);

	if (level > 0) {
		state->average = state->average - share(state->average, params->weight) + level * params->weight;
		state->left = 0;
	} else if (params->typical_time == 0) {
		state->average = 0;
	} else {
		__u64 idle = state->left + arrival->idle;
		__u64 packets = idle / params->typical_time;

		red_decay(params, state, packets);
		state->left = idle - packets * params->typical_time;
	}
}

static __always_inline bool red_is_hit(__u64 base, __u64 count, __u64 random)
{
	__u64 used = count * base;

	return base >= ONE || used >= ONE || random * (ONE - used) < base << 32;
}

static __always_inline enum verdict red_by_law(const volatile struct red_params *params, struct red_state *state,
					       const struct arrival *arrival, bool heavy)
{
	__u64 base, count;

	if (state->average < params->min) {
		state->count[OTHERS] = state->count[HEAVY] = 0;
		return PASS;
	}
	if (state->average >= params->top) {
		state->count[OTHERS] = state->count[HEAVY] = 1;
		return DROP_FORCED;
	}
	base = slope_at(state->average < params->max ? &params->rise : &params->gentle, state->average);
	if (heavy) {
		base = base * params->n >> 16;
		if (base > ONE)
			base = ONE;
	}
	count = state->count[heavy];
	if (!red_is_hit(base, count, random_bits(params->key, arrival->number) >> 32)) {
		state->count[heavy] = count + 1 < MOST ? count + 1 : MOST;
		return PASS;
	}
	state->count[heavy] = 1;
	return params->ecn && arrival->capable ? MARK : DROP_EARLY;
}

static __always_inline enum verdict red_judge(const volatile struct red_params *params, struct red_state *state,
					      const struct arrival *arrival, bool heavy)
{
	enum verdict verdict;

	red_update_average(params, state, arrival);
	verdict = red_by_law(params, state, arrival, heavy);
	if (verdict <= MARK && !room_fits(&params->room, arrival))
		return DROP_FULL;
	return verdict;
}

#endif
