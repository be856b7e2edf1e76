/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include "left_out.h"

#include "../../src/bpf/ctcp.bpf.c"
