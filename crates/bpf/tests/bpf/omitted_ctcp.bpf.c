/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include "omitted.h"

#include "../../src/bpf/ctcp.bpf.c"
