// SPDX-License-Identifier: GPL-2.0-only
/* The kernel's side of clock.h. */
#include <linux/irqflags.h>
#include <linux/ktime.h>
#include <linux/time-internal.h>
#include <linux/timekeeping.h>
#include "clock.h"
#include "ekiden.h"

static struct ekiden_clock *clock;

void ekiden_start_clock(void *page)
{
	clock = ekiden_clock_of((unsigned long)page);
	clock->reads = EKIDEN_FREE_READS;
}

void ekiden_publish_clock(void)
{
	unsigned long flags;

	if (!clock || time_travel_mode != TT_MODE_INFCPU)
		return;
	/* With interrupts disabled, a read of the clock takes no virtual time. */
	local_irq_save(flags);
	clock->monotonic = ktime_get_ns();
	clock->realtime = ktime_get_real_ns();
	clock->reads = 0;
	local_irq_restore(flags);
}
