/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The law in use. It is constant when the program is loaded, so the verifier removes the code of the others. */
#ifndef EKIDEN_AQM_LAW_H
#define EKIDEN_AQM_LAW_H

#include "aqm_auto.h"
#include "aqm_priority.h"

enum mode {
	MODE_RED,
	MODE_STATIC,
	MODE_DYNAMIC,
	MODE_AUTO,
};

struct law {
	__u64 mode;
	union {
		struct red_params red;
		struct static_params by_sender;
		struct dynamic_params by_history;
		struct auto_params by_share;
	};
};

union law_state {
	struct red_state red;
	struct dynamic_state dynamic;
	struct auto_state by_share;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, union law_state);
} aqm_law SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* page-aligned, so that a slot is one cache line */
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct auto_set);
} aqm_shares SEC(".maps");

static __always_inline const volatile struct room *law_room(const volatile struct law *law)
{
	return law->mode == MODE_AUTO ? &law->by_share.room : &law->red.room;
}

/* Returns the state of the connection for laws that have one. Called before the queue is locked. */
static __always_inline struct auto_set *law_set(const volatile struct law *law, __u32 flow)
{
	__u32 index = auto_place(flow) & law->by_share.mask;

	return law->mode == MODE_AUTO ? bpf_map_lookup_elem(&aqm_shares, &index) : 0;
}

static __always_inline enum verdict law_judge(const volatile struct law *law, union law_state *state,
					      struct auto_set *set, const struct arrival *arrival)
{
	switch (law->mode) {
	case MODE_STATIC:
		return by_sender(&law->by_sender, &state->red, arrival);
	case MODE_DYNAMIC:
		return by_history(&law->by_history, &state->dynamic, arrival);
	case MODE_AUTO:
		return set ? auto_arrive(&law->by_share, &state->by_share, set, arrival) : PASS;
	default:
		return red_judge(&law->red, &state->red, arrival, false);
	}
}

#endif
