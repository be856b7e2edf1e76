/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * For tests: single steps of the arithmetic of the algorithms, run as BPF (BPF_PROG_TEST_RUN) and as the code of gcc
 * (tests/stepper).
 */
#include "../../src/bpf/bic.h"
#include "../../src/bpf/highspeed.h"
#include "../../src/bpf/hybla.h"
#include "../../src/bpf/last_values.h"
#include "../../src/bpf/scalable.h"
#include "../../src/bpf/vegas.h"
#include "../../src/bpf/westwood.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* A window, the number of acknowledged packets, and further arguments of the algorithm. */
struct growing {
	__u64 window;
	__u64 part;
	__u64 acked;
	__u64 first;
	__u64 second;
};

#define GROWING(name, grow, ...)                                                           \
	SEC("syscall")                                                                     \
	int name(struct growing *step)                                                     \
	{                                                                                  \
		struct growth growth = { .window = step->window, .part = step->part };     \
                                                                                           \
		grow(&growth, ##__VA_ARGS__, step->acked);                                 \
		step->window = growth.window;                                              \
		step->part = growth.part;                                                  \
		return 0;                                                                  \
	}

GROWING(step_scalable_grow, scalable_grow)
GROWING(step_highspeed_grow, highspeed_grow)
GROWING(step_bic_grow, bic_grow, step->first)
GROWING(step_hybla_grow, hybla_grow, step->first, step->second)

struct reducing {
	__u64 window;
	__u64 first;
};

SEC("syscall")
int step_scalable_reduce(struct reducing *step)
{
	step->window = scalable_reduce(step->window);
	return 0;
}

SEC("syscall")
int step_highspeed_reduce(struct reducing *step)
{
	step->window = highspeed_reduce(step->window);
	return 0;
}

SEC("syscall")
int step_bic_reduce(struct reducing *step)
{
	__u32 maximum = step->first;

	step->window = bic_reduce(step->window, &maximum);
	step->first = maximum;
	return 0;
}

SEC("syscall")
int step_hybla_reduce(struct reducing *step)
{
	step->window = at_least_two(step->window / 2);
	return 0;
}

struct hybla {
	__u64 base_us;
	__u64 rtt_us;
	__u64 rho;
	__u64 sees_queue;
};

SEC("syscall")
int step_hybla(struct hybla *step)
{
	step->rho = hybla_rho(step->base_us);
	step->sees_queue = hybla_sees_queue(step->base_us, step->rtt_us);
	return 0;
}

struct westwood {
	__u64 bandwidth;
	__u64 delivered;
	__u64 us;
	__u64 base_us;
	__u64 window;
};

SEC("syscall")
int step_westwood(struct westwood *step)
{
	step->bandwidth = westwood_filter(step->bandwidth, westwood_sample(step->delivered, step->us));
	step->window = westwood_window(step->bandwidth, step->base_us);
	return 0;
}

struct vegas_step {
	__u64 window;
	__u64 threshold;
	__u64 holds;
	__u64 base_us;
	__u64 rtt_us;
};

SEC("syscall")
int step_vegas(struct vegas_step *step)
{
	struct vegas vegas = { .window = step->window, .threshold = step->threshold, .holds = step->holds };

	vegas_round(&vegas, step->base_us, step->rtt_us);
	step->window = vegas.window;
	step->threshold = vegas.threshold;
	step->holds = vegas.holds;
	return 0;
}

struct last_values_step {
	__u64 threshold; /* in: the recorded value; out: the new value */
	__u64 max_window;
	__u64 window;
	__u64 found; /* in: ssthresh; out: whether it is expected */
	__u64 otherwise;
};

SEC("syscall")
int step_last_values(struct last_values_step *step)
{
	struct last_values last = { .threshold = step->threshold, .max_window = step->max_window };
	bool explained = is_expected_threshold(&last, step->found);

	step->window = expected_window(&last, step->window, step->otherwise);
	record_values(&last, step->window, step->found);
	step->threshold = last.threshold;
	step->max_window = last.max_window;
	step->found = explained;
	return 0;
}
