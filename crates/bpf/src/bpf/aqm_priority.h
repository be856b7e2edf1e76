/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Priority drop: history.rs and priority.rs of crates/proto/src/aqm, line by line. */
#ifndef EKIDEN_AQM_PRIORITY_H
#define EKIDEN_AQM_PRIORITY_H

#include "aqm_red.h"

/* history.rs. Masks without effect show the verifier that indices are in bounds. */

#define LONGEST 1024
#define FIRSTS (2 * LONGEST) /* a power of two above LONGEST, for the mask */
#define HISTORY_WAYS 8
#define HISTORY_SETS 256
#define HISTORY_SLOTS (HISTORY_SETS * HISTORY_WAYS)

struct history_slot {
	__u32 flow;
	__u16 count;
	__u16 before;
	__u16 behind;
};

struct history {
	__u16 ring[LONGEST];
	__u16 first[FIRSTS];
	struct history_slot slots[HISTORY_SLOTS];
	__u32 at;
	__u32 most;
};

static __always_inline struct history_slot *history_slot(struct history *history, __u32 slot)
{
	return &history->slots[(slot - 1) & (HISTORY_SLOTS - 1)];
}

static __always_inline __u16 *history_first(struct history *history, __u32 count)
{
	return &history->first[count & (FIRSTS - 1)];
}

static __always_inline void history_unlink(struct history *history, __u16 slot)
{
	struct history_slot *of = history_slot(history, slot);

	if (!of->count)
		return;
	if (!of->before)
		*history_first(history, of->count) = of->behind;
	else
		history_slot(history, of->before)->behind = of->behind;
	if (of->behind)
		history_slot(history, of->behind)->before = of->before;
}

static __always_inline void history_link(struct history *history, __u16 slot)
{
	struct history_slot *of = history_slot(history, slot);
	__u16 *first = history_first(history, of->count);

	if (!of->count)
		return;
	of->before = 0;
	of->behind = *first;
	if (of->behind)
		history_slot(history, of->behind)->before = slot;
	*first = slot;
}

static __always_inline void history_raise(struct history *history, __u16 slot)
{
	if (!slot)
		return;
	history_unlink(history, slot);
	history_slot(history, slot)->count++;
	history_link(history, slot);
	if (history->most < history_slot(history, slot)->count)
		history->most = history_slot(history, slot)->count;
}

static __always_inline void history_lower(struct history *history, __u16 slot)
{
	if (!slot)
		return;
	history_unlink(history, slot);
	history_slot(history, slot)->count--;
	history_link(history, slot);
	if (!*history_first(history, history->most))
		history->most--;
}

static __always_inline __u16 history_find(struct history *history, __u32 flow)
{
	__u32 set = flow % HISTORY_SETS * HISTORY_WAYS;
	__u16 free = 0;

	for (__u32 way = 0; way < HISTORY_WAYS; way++) {
		struct history_slot *slot = &history->slots[set + way];

		if (slot->count && slot->flow == flow)
			return set + way + 1;
		if (!slot->count && !free)
			free = set + way + 1;
	}
	if (free)
		history_slot(history, free)->flow = flow;
	return free;
}

static __always_inline void history_record(struct history *history, __u32 flow, __u32 length)
{
	__u32 at = history->at & (LONGEST - 1);
	__u16 slot;

	history_lower(history, history->ring[at]);
	slot = history_find(history, flow);
	history->ring[at] = slot;
	history_raise(history, slot);
	history->at = at + 1 < length ? at + 1 : 0;
}

/* priority.rs */

#define SENDERS 16

struct static_params {
	struct red_params red;
	__u32 heavy[SENDERS];
	__u64 senders;
};

struct dynamic_params {
	struct red_params red;
	__u32 rec_int;
	__u32 sta_int;
	__u32 hist_len;
};

struct dynamic_state {
	struct red_state red;
	__u32 unrecorded;
	__u32 undetermined;
	__u32 heavy;
	__u32 known;
	struct history history;
};

static __always_inline bool static_is_heavy(const volatile struct static_params *params, __u32 source)
{
	bool found = false;

	for (__u32 index = 0; index < SENDERS; index++)
		found |= index < params->senders && params->heavy[index] == source;
	return found;
}

static __always_inline enum verdict by_sender(const volatile struct static_params *params, struct red_state *state,
					      const struct arrival *arrival)
{
	return red_judge(&params->red, state, arrival, static_is_heavy(params, arrival->source));
}

static __always_inline void dynamic_observe(const volatile struct dynamic_params *params, struct dynamic_state *state,
					    __u32 flow)
{
	state->unrecorded++;
	if (state->unrecorded >= params->rec_int) {
		state->unrecorded = 0;
		history_record(&state->history, flow, params->hist_len);
	}
	state->undetermined++;
	if (state->undetermined >= params->sta_int) {
		__u16 slot = *history_first(&state->history, state->history.most);

		state->undetermined = 0;
		state->known = slot != 0;
		state->heavy = slot ? history_slot(&state->history, slot)->flow : 0;
	}
}

static __always_inline enum verdict by_history(const volatile struct dynamic_params *params, struct dynamic_state *state,
					       const struct arrival *arrival)
{
	dynamic_observe(params, state, arrival->flow);
	return red_judge(&params->red, &state->red, arrival, state->known && state->heavy == arrival->flow);
}

#endif
