/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * For tests: a congestion control whose `init`, `ssthresh` and `set_state` are replaced by functions without effect, as
 * if the kernel omitted these calls. `ssthresh` returns an address, as observed. Include this before the algorithm, and
 * telemetry.h before this if the algorithm uses it.
 */
#include "../../src/bpf/omitted_calls.h"

#define OMITTED_RESULT 0x81104110

__u32 asked; /* calls of `ssthresh` */
__u32 wrong; /* calls of `ssthresh` that found the previous result in snd_ssthresh */

SEC("struct_ops")
void BPF_PROG(omitted_init, struct sock *sk)
{
}

SEC("struct_ops")
__u32 BPF_PROG(omitted_ssthresh, struct sock *sk)
{
	asked++;
	wrong += tcp_sk(sk)->snd_ssthresh == OMITTED_RESULT;
	return OMITTED_RESULT;
}

SEC("struct_ops")
void BPF_PROG(omitted_set_state, struct sock *sk, __u8 state)
{
}

/* libbpf requires that every program is used; the tests do not load this map. */
SEC(".struct_ops.link")
struct tcp_congestion_ops omitted_7_1 = {
	.name = "omitted",
	.init = (void *)cc_init,
	.ssthresh = (void *)cc_ssthresh,
#ifdef EKIDEN_TELEMETRY_H
	.set_state = (void *)common_set_state,
#else
	.set_state = (void *)omitted_set_state,
#endif
};

#define cc_init omitted_init
#define cc_ssthresh omitted_ssthresh
#define common_set_state omitted_set_state
