/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The interface of tc programs: from uapi/linux/bpf.h and pkt_cls.h of the kernel, whose layouts never change. */
#ifndef EKIDEN_AQM_KERNEL_H
#define EKIDEN_AQM_KERNEL_H

#include "kernel.h"
#include <bpf/bpf_endian.h>

#define BPF_F_MMAPABLE (1 << 10)
#define BPF_HDR_START_NET 1

#define TC_ACT_UNSPEC (-1) /* continue with the next filter */
#define TC_ACT_SHOT 2

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8

#define IPPROTO_TCP 6
#define IPPROTO_UDP 17

struct bpf_sock;

struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex; /* 0 for packets of this host */
	__u32 ifindex;
	__u32 tc_index;
	__u32 cb[5];
	__u32 hash;
	__u32 tc_classid;
	__u32 data;
	__u32 data_end;
	__u32 napi_id;
	__u32 of_sockets[13];
	__u32 data_meta;
	__u64 flow_keys __attribute__((aligned(8)));
	__u64 tstamp;
	__u32 wire_len; /* including the headers of all segments of a superpacket */
	__u32 gso_segs;
	struct bpf_sock *sk __attribute__((aligned(8)));
	__u32 gso_size;
	__u8 tstamp_type;
	__u64 hwtstamp __attribute__((aligned(8)));
};

#endif
