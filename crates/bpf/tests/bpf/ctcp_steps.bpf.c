/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * For tests: one step of Compound TCP's arithmetic. The test passes a state and an event, and gets the next state, from
 * BPF (BPF_PROG_TEST_RUN) and from the code of gcc (tests/stepper).
 */
#include "../../src/bpf/kernel.h"
#include "../../src/bpf/ctcp.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* In the order of `Op` in tests/ctcp/steps.rs. */
enum op {
	START,
	FOLLOW,
	GROW,
	SAMPLE,
	END_ROUND,
	REDUCE,
	TUNE_GAMMA,
	FIX_GAMMA,
	UNDO,
	TIMEOUT,
	END_SLOW_START,
	END_RECOVERY,
};

struct step {
	__u32 op;
	__u32 number;     /* the argument: packets or microseconds */
	__u32 slow_start; /* not 0: the connection is in slow start */
	struct ctcp_round round;
	struct ctcp state;
};

SEC("syscall")
int take_step(struct step *step)
{
	struct ctcp c = step->state;
	struct ctcp_round round = step->round;

	switch (step->op) {
	case START:
		ctcp_start(&c, step->number);
		break;
	case FOLLOW:
		ctcp_follow(&c, step->number, step->slow_start);
		break;
	case GROW:
		ctcp_grow(&c, step->number);
		break;
	case SAMPLE:
		ctcp_sample(&c, step->number);
		break;
	case END_ROUND:
		ctcp_end_round(&c, &round, step->slow_start);
		break;
	case REDUCE:
		ctcp_reduce(&c);
		break;
	case TUNE_GAMMA:
		ctcp_tune_gamma(&c);
		break;
	case FIX_GAMMA:
		ctcp_fix_gamma(&c, step->number);
		break;
	case UNDO:
		ctcp_undo(&c, step->number);
		break;
	case TIMEOUT:
		ctcp_timeout(&c, step->number);
		break;
	case END_SLOW_START:
		ctcp_end_slow_start(&c);
		break;
	case END_RECOVERY:
		ctcp_end_recovery(&c, &round);
		break;
	}
	step->state = c;
	return 0;
}
