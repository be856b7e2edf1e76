/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Takes the place of crates/bpf/src/bpf/kernel.h where the congestion controls are compiled into a kernel, which has no
 * BPF struct_ops without a JIT compiler. The rest of their code is the same: the types and functions are the kernel's,
 * programs are functions, and no program outside reads or sets anything of a connection.
 */
#ifndef EKIDEN_KERNEL_H
#define EKIDEN_KERNEL_H

#include <linux/bpf.h>
#include <linux/version.h>
#include <net/tcp.h>

#define SEC(name)
#define BPF_PROG(name, ...) name(__VA_ARGS__)
#define BPF_CORE_READ_BITFIELD(object, field) ((object)->field)
#define IS_EVENT(event, name) ((event) == (name))

/* Maps are declared and not used. */
#define __uint(name, value) int (*name)[value]
#define __type(name, value) typeof(value) *name
#define bpf_sk_storage_get(map, sk, value, flags) NULL

/* cc.h defines it as a number. */
#undef TCP_CONG_NON_RESTRICTED

/* Of a control with two declarations, register.c takes the one that fits. The other one must compile. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 1, 0)
#define cwnd_event_tx_start release
#endif

static __always_inline __u32 smaller(__u32 a, __u32 b)
{
	return a < b ? a : b;
}

static __always_inline __u32 larger(__u32 a, __u32 b)
{
	return a > b ? a : b;
}

#endif
