/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include "../../src/bpf/cubic.h"
#include "omitted.h"

#include "../../src/bpf/cubicresume.bpf.c"
