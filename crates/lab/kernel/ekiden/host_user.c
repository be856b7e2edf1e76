// SPDX-License-Identifier: GPL-2.0-only
/* The part that runs against the C library of the host: random numbers from a seed, and the watchdog. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <init.h>
#include "ekiden.h"

int ekiden_seeded_random(void *data, unsigned long length)
{
	static unsigned long long state;
	static int is_seeded = -1;
	unsigned char *bytes = data;

	if (is_seeded < 0) {
		const char *seed = getenv("EKIDEN_SEED");

		is_seeded = seed != NULL;
		if (seed)
			state = strtoull(seed, NULL, 16);
	}
	if (!is_seeded)
		return 0;
	/* SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. */
	for (unsigned long i = 0; i < length; i++) {
		unsigned long long mixed = (state += 0x9e3779b97f4a7c15ULL);

		mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
		mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
		bytes[i] = mixed ^ (mixed >> 31);
	}
	return 1;
}

#define PERIOD_S 1

static unsigned long limit_s;

/*
 * A process that runs for ever without a system call stops virtual time, and nothing in the guest can notice. This runs
 * in the real time of the host. Only async-signal-safe functions are called (signal-safety(7)).
 */
static void watch(int signal)
{
	static unsigned long long seen;
	static unsigned long still_s;
	unsigned long long now = ekiden_ticks();
	const char *name;
	char text[160];
	int pid;

	if (now != seen || ekiden_is_waiting_for_host()) {
		seen = now;
		still_s = 0;
		return;
	}
	still_s += PERIOD_S;
	if (still_s < limit_s)
		return;
	name = ekiden_running_name(&pid);
	snprintf(text, sizeof(text), "virtual time stood still for %lu s of real time: process %d (%s) runs without a pause\n",
		 still_s, pid, name);
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		_exit(EXIT_FAILURE);
	_exit(EKIDEN_EXIT_STUCK);
}

void ekiden_start_watchdog(void)
{
	const char *limit = getenv("EKIDEN_WATCHDOG");
	const struct itimerspec period = { .it_interval.tv_sec = PERIOD_S, .it_value.tv_sec = PERIOD_S };
	struct sigaction action = { .sa_handler = watch, .sa_flags = SA_RESTART };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF };
	timer_t timer;

	limit_s = limit ? strtoul(limit, NULL, 10) : 0;
	if (!limit_s)
		return;
	/* Interrupted handlers of UML would see a nested one otherwise. */
	sigfillset(&action.sa_mask);
	if (sigaction(SIGPROF, &action, NULL) < 0 || timer_create(CLOCK_MONOTONIC, &event, &timer) < 0 ||
	    timer_settime(timer, 0, &period, NULL) < 0)
		perror("watchdog");
}
