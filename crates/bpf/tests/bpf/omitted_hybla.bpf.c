/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include "../../src/bpf/telemetry.h"
#include "omitted.h"

#include "../../src/bpf/hybla.bpf.c"
