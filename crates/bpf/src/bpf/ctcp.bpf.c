/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include "cc.h"

char _license[] SEC("license") = "Dual MIT/GPL";

extern __u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern __u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;

SEC("struct_ops")
void BPF_PROG(ctcp_init, struct sock *sk)
{
	sk->sk_pacing_status = SK_PACING_NEEDED;
}

SEC("struct_ops")
__u32 BPF_PROG(ctcp_ssthresh, struct sock *sk)
{
	return tcp_reno_ssthresh(sk);
}

SEC("struct_ops")
void BPF_PROG(ctcp_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked);
}

SEC("struct_ops")
__u32 BPF_PROG(ctcp_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops ctcp = {
	.name = "ctcp",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)ctcp_init,
	.ssthresh = (void *)ctcp_ssthresh,
	.cong_avoid = (void *)ctcp_cong_avoid,
	.undo_cwnd = (void *)ctcp_undo_cwnd,
};
