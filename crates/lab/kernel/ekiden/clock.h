/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The clock of processes. A system call costs several microseconds of real time here, and event loops read the clock in
 * each turn. While a process runs no virtual time passes, so the kernel writes the time into the page of the vDSO before
 * a process continues.
 *
 * Only some reads are answered so. A process that waits for a time by reading the clock alone must come to the kernel,
 * where a read takes time.
 */
#ifndef EKIDEN_CLOCK_H
#define EKIDEN_CLOCK_H

#define EKIDEN_FREE_READS 64
#define EKIDEN_PAGE 4096UL

/* At the end of the page, which the vDSO does not fill. One process runs at a time, so one counter is enough. */
struct ekiden_clock {
	unsigned long long monotonic; /* nanoseconds */
	unsigned long long realtime;  /* nanoseconds */
	unsigned int reads;           /* since a process was continued */
};

static inline struct ekiden_clock *ekiden_clock_of(unsigned long page)
{
	return (struct ekiden_clock *)((page & ~(EKIDEN_PAGE - 1)) + EKIDEN_PAGE - sizeof(struct ekiden_clock));
}

/* Reads CLOCK_REALTIME, CLOCK_MONOTONIC or CLOCK_BOOTTIME into seconds and nanoseconds. Returns 0 if the kernel must. */
static inline int ekiden_read_clock(int id, long *time)
{
	struct ekiden_clock *clock;
	unsigned long long now;
	unsigned long here;

	/* The vDSO is one page, and has no relocations. */
	asm("lea 0(%%rip), %0" : "=r" (here));
	clock = ekiden_clock_of(here);
	now = id == 0 ? clock->realtime : clock->monotonic;
	if (clock->reads >= EKIDEN_FREE_READS || (id != 0 && id != 1 && id != 7))
		return 0;
	clock->reads++;
	time[0] = now / 1000000000;
	time[1] = now % 1000000000;
	return 1;
}

#endif
