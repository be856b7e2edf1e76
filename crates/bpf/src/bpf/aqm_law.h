/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* One of the laws, by what was set before the program was loaded: the verifier takes the others out. */
#ifndef EKIDEN_AQM_LAW_H
#define EKIDEN_AQM_LAW_H

#include "aqm_priority.h"

enum mode {
	MODE_RED,
	MODE_STATIC,
	MODE_DYNAMIC,
};

struct law {
	__u64 mode;
	union {
		struct red_params red;
		struct static_params by_sender;
		struct dynamic_params by_history;
	};
};

union law_state {
	struct red_state red;
	struct dynamic_state dynamic;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, union law_state);
} aqm_law SEC(".maps");

/* All laws begin with RED's. */
static __always_inline const volatile struct room *law_room(const volatile struct law *law)
{
	return &law->red.room;
}

static __always_inline enum verdict law_judge(const volatile struct law *law, union law_state *state,
					      const struct arrival *arrival)
{
	switch (law->mode) {
	case MODE_STATIC:
		return by_sender(&law->by_sender, &state->red, arrival);
	case MODE_DYNAMIC:
		return by_history(&law->by_history, &state->dynamic, arrival);
	default:
		return red_judge(&law->red, &state->red, arrival, false);
	}
}

#endif
