// SPDX-License-Identifier: GPL-2.0-only
/*
 * The price of system calls in virtual time.
 *
 * With time-travel=inf-cpu a process takes no time until it sleeps. A process that polls without a sleep would run for
 * ever, because the event it polls for never comes. So the time passes while one process does nothing but ask: 1 us a
 * call from the 64th such call in a row, 10 us from the 512th.
 */
#include <linux/init.h>
#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/sched.h>
#include <linux/time-internal.h>
#include <asm/unistd.h>
#include "ekiden.h"

static bool only_asks(int syscall)
{
	switch (syscall) {
	case __NR_clock_gettime: case __NR_gettimeofday: case __NR_time: case __NR_getrusage: case __NR_times:
	case __NR_select: case __NR_pselect6: case __NR_poll: case __NR_ppoll:
	case __NR_epoll_wait: case __NR_epoll_pwait: case __NR_epoll_pwait2: case __NR_sched_yield:
		return true;
	default:
		return false;
	}
}

void ekiden_charge(int syscall)
{
	static struct task_struct *last;
	static unsigned int asked;

	if (time_travel_mode != TT_MODE_INFCPU)
		return;
	if (!only_asks(syscall) || last != current)
		asked = 0;
	last = current;
	if (!only_asks(syscall))
		return;
	asked++;
	if (asked > 512)
		time_travel_ndelay(10000);
	else if (asked > 64)
		time_travel_ndelay(1000);
}

unsigned long long ekiden_ticks(void)
{
	return get_jiffies_64();
}

const char *ekiden_running_name(int *pid)
{
	*pid = current->pid;
	return current->comm;
}

static bool is_waiting;

void ekiden_set_waiting_for_host(int waits)
{
	is_waiting = waits;
}

int ekiden_is_waiting_for_host(void)
{
	return is_waiting;
}

static int __init watchdog_init(void)
{
	ekiden_start_watchdog();
	return 0;
}
late_initcall(watchdog_init);
