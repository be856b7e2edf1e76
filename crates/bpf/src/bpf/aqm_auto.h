/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The law `auto`: auto/mod.rs of crates/proto/src/aqm, line by line. */
#ifndef EKIDEN_AQM_AUTO_H
#define EKIDEN_AQM_AUTO_H

#include "aqm_fair.h"

static __always_inline void auto_move_bar(struct auto_state *state, __u64 passed, __u64 calm)
{
	__u64 reference = state->reference;
	__s64 highest = state->highest > state->highest_before ? state->highest : state->highest_before;

	if (calm >= reference) {
		__u64 over = (at_most(calm - reference, 4 * reference) << 10) / reference;

		state->above += passed * over;
		if (state->last >= state->pause)
			state->bar -= passed * over >> 9;
	} else {
		__u64 under = ((reference - calm) << 10) / reference;

		state->below += passed * under;
		state->bar += passed * under >> 9;
	}
	if (highest != AUTO_NOBODY && state->bar > highest + AUTO_CLEARANCE)
		state->bar = highest + AUTO_CLEARANCE;
	if (state->bar < state->mean - AUTO_DEEPEST)
		state->bar = state->mean - AUTO_DEEPEST;
}

static __always_inline __u64 auto_observe(const volatile struct auto_params *params, struct auto_state *state, __u64 now,
					  __u64 waits)
{
	bool first = !state->epoch, over;
	__u64 passed, part, calm;

	if (first)
		auto_begin(params, state, now);
	over = less(now, state->began) >= AUTO_EPOCH;
	if (over)
		auto_end_epoch(params, state, now);
	if (first || over)
		auto_derive(params, state);
	passed = at_most(less(now, state->last), 1 << 30);
	state->last = now;
	part = at_most(passed, 1 << AUTO_SMOOTH) >> 7;
	if (waits > state->average)
		state->average += (waits - state->average) * part >> (AUTO_SMOOTH - 7);
	else
		state->average -= (state->average - waits) * part >> (AUTO_SMOOTH - 7);
	calm = at_most(waits, state->average);
	auto_move_bar(state, passed, calm);
	return calm;
}

static __always_inline void auto_meet(struct auto_state *state, struct auto_slot *slot, __u64 now)
{
	__u64 passed = less(now, slot->seen);
	__s64 lead = slot->lead - (__s64)at_most(passed, 1ULL << 62);

	slot->seen = now;
	if (lead < state->mean - AUTO_RANGE)
		lead = state->mean - AUTO_RANGE;
	if (lead > state->mean + AUTO_RANGE)
		lead = state->mean + AUTO_RANGE;
	slot->lead = lead;
	slot->recent = slot->recent * AUTO_RECENT / (AUTO_RECENT + at_most(passed, 1ULL << 40));
	if (slot->epoch != (__u32)state->epoch)
		auto_count(state, slot);
	if (slot->recent > AUTO_RECENT * 6 / 10 && state->highest < slot->lead)
		state->highest = slot->lead;
}

static __always_inline bool auto_is_due(const struct auto_state *state, const struct auto_slot *slot, __u64 now,
					__u64 waits, __u64 calm)
{
	bool urgent, empties, waits_for_answer;
	__s64 score, bar;

	if (slot->recent <= AUTO_RECENT * 6 / 10 || calm <= state->reference / 2)
		return false;
	urgent = calm > state->urgent;
	empties = 20 * waits < 19 * state->average;
	waits_for_answer = now < state->pause && !urgent;
	if (slot->doublings < AUTO_DEAF && (empties || waits_for_answer))
		return false;
	score = slot->lead + AUTO_FORESIGHT * ((__s64)slot->recent - AUTO_RECENT);
	if (calm <= state->reference) {
		__s64 far = state->mean + AUTO_FAR;

		return slot->recent > AUTO_RECENT && slot->lead > far && score > far;
	}
	bar = state->bar;
	if (urgent) {
		__u64 excess = ((calm - state->urgent) << 10) / state->urgent;

		bar -= (AUTO_RANGE >> 10) * (__s64)at_most(excess, 1 << 14);
	}
	return score > bar;
}

static __always_inline enum verdict auto_judge(const volatile struct auto_params *params, struct auto_state *state,
					       struct auto_slot *slot, const struct arrival *arrival, __u64 waits,
					       __u64 calm)
{
	__u64 patience, since, wait;

	if (!auto_is_due(state, slot, arrival->now, waits, calm))
		return PASS;
	patience = at_most(AUTO_PATIENCE + 2 * waits, AUTO_LONGEST_PATIENCE);
	if (slot->recent > 2 * AUTO_RECENT)
		patience = patience * 2 * AUTO_RECENT / slot->recent;
	since = slot->hit_at ? less(arrival->now, slot->hit_at) : ~0ULL;
	slot->doublings -= at_most(since >> AUTO_RELAX, slot->doublings);
	wait = patience >> slot->doublings;
	if (since < wait && slot->doublings < AUTO_POLICED)
		return PASS;
	if (since < 2 * wait && 10 * slot->recent > 9 * slot->hit_recent) {
		__u32 steps = 1 + (slot->recent > AUTO_RECENT * 3 / 2) + (slot->recent > AUTO_RECENT * 4);

		slot->doublings = at_most(slot->doublings + steps, AUTO_POLICED);
	}
	slot->hit_at = arrival->now;
	slot->hit_recent = slot->recent;
	if (slot->doublings < AUTO_DEAF)
		state->pause = arrival->now + (patience << 18) / at_least(state->crowd * state->crowd, 1 << 18);
	return params->ecn && arrival->capable && slot->doublings < AUTO_POLICED ? MARK : DROP_EARLY;
}

static __always_inline void auto_credit(const volatile struct auto_params *params, struct auto_state *state,
					struct auto_slot *slot, __u32 bytes)
{
	__u64 time;

	if (slot->bytes < AUTO_FEW_BYTES && slot->bytes + bytes >= AUTO_FEW_BYTES)
		auto_count_busy(params, state);
	time = at_most(bytes, AUTO_LARGEST_PACKET) * state->price >> 16;
	slot->lead += time;
	slot->recent = at_most(slot->recent + time, AUTO_FASTEST);
	slot->bytes += bytes;
}

static __always_inline enum verdict auto_arrive(const volatile struct auto_params *params, struct auto_state *state,
						struct auto_set *set, const struct arrival *arrival)
{
	__u64 waits = auto_waiting_time(params->byte_time, arrival->waiting.bytes);
	__u64 calm = auto_observe(params, state, arrival->now, waits);
	struct auto_slot *slot = auto_find(set, arrival, state->mean - AUTO_START);
	enum verdict verdict;

	auto_meet(state, slot, arrival->now);
	verdict = auto_judge(params, state, slot, arrival, waits, calm);
	if (verdict > MARK)
		return verdict;
	if (!room_fits(&params->room, arrival))
		return DROP_FULL;
	auto_credit(params, state, slot, arrival->bytes);
	return verdict;
}

#endif
