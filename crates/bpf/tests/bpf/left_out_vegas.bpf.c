/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include "../../src/bpf/tell.h"
#include "left_out.h"

#include "../../src/bpf/vegas.bpf.c"
