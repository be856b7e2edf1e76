/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Takes the place of the kernel's <net/tcp.h>, of which the arithmetic needs these words alone. */
#include <stdbool.h>

#undef __always_inline
#define __always_inline inline __attribute__((__always_inline__))
