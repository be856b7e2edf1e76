/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Replaces the kernel's <net/tcp.h>. The arithmetic needs only these definitions. */
#include <stdbool.h>

#undef __always_inline
#define __always_inline inline __attribute__((__always_inline__))
