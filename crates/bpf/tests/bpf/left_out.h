/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * For tests: a congestion control whose calls the kernel always leaves out where what is left out matters most, at the
 * beginning and at a loss. What it then takes for ssthresh is an address of its own, as was seen. Include this, and after
 * it the algorithm; where that tells by tell.h, include tell.h first.
 */
#include "../../src/bpf/mend.h"

#define LEFT_OUT 0x81104110

__u32 asked; /* for ssthresh */
__u32 wrong; /* times the answer before was still there */

SEC("struct_ops")
void BPF_PROG(init_left_out, struct sock *sk)
{
}

SEC("struct_ops")
__u32 BPF_PROG(ssthresh_left_out, struct sock *sk)
{
	asked++;
	wrong += tcp_sk(sk)->snd_ssthresh == LEFT_OUT;
	return LEFT_OUT;
}

SEC("struct_ops")
void BPF_PROG(set_state_left_out, struct sock *sk, __u8 state)
{
}

/* libbpf wants every program to be used; the tests load no map of such a name. */
SEC(".struct_ops.link")
struct tcp_congestion_ops left_out_7_1 = {
	.name = "left_out",
	.init = (void *)kept_init,
	.ssthresh = (void *)kept_ssthresh,
#ifdef EKIDEN_TELL_H
	.set_state = (void *)tell_set_state,
#else
	.set_state = (void *)set_state_left_out,
#endif
};

#define kept_init init_left_out
#define kept_ssthresh ssthresh_left_out
#define tell_set_state set_state_left_out
