/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * For tests: one step of Careful Resume. The test passes a state and an event, and gets the next state, from BPF
 * (BPF_PROG_TEST_RUN) and from the code of gcc (tests/stepper).
 */
#include "../../src/bpf/resume.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* In the order of `Op` in tests/resume/steps.rs. */
enum op {
	START,
	RATE,
	ACK,
	CONGESTION,
	PROVEN,
	CAN_GROW,
	LEAVE_RETREAT,
	FOLLOW,
	LIMIT,
};

struct step {
	__u64 op; /* in: the operation; out: its result */
	__u64 number; /* a window or ssthresh in packets, or whether a timeout has occurred */
	struct flow flow;
	struct resume state;
};

SEC("syscall")
int take_step(struct step *step)
{
	struct resume state = step->state;
	struct flow flow = step->flow;
	__u64 op = step->op;

	step->op = 0;
	switch (op) {
	case START:
		step->op = resume_start(&state, &flow);
		break;
	case RATE:
		step->op = resume_rate(&state, &flow);
		break;
	case ACK:
		step->op = resume_on_ack(&state, &flow);
		break;
	case CONGESTION:
		resume_on_congestion(&state, &flow);
		break;
	case PROVEN:
		step->op = resume_proven(&state, step->number);
		break;
	case CAN_GROW:
		step->op = resume_can_grow(&state, step->number);
		break;
	case LEAVE_RETREAT:
		step->op = resume_leave_retreat(&state, &flow);
		break;
	case LIMIT:
		step->op = resume_limit(&state, step->number);
		break;
	case FOLLOW:
		step->op = resume_follow(&state, step->number);
		break;
	}
	step->state = state;
	return 0;
}
