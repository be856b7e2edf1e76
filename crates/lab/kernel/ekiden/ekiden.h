/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef EKIDEN_H
#define EKIDEN_H

/* Shared by code that includes the kernel's headers and code that includes those of the C library. */

/* The page of the vDSO gets the clock; the clock of a process that continues. */
void ekiden_start_clock(void *page);
void ekiden_publish_clock(void);

/* Called for each system call of a process. */
void ekiden_charge(int syscall);

/* Whether the machine waits for its host: then virtual time may stand still for any length of real time. */
void ekiden_set_waiting_for_host(int waits);
int ekiden_is_waiting_for_host(void);

/* Timer ticks since boot, and the name of the process that runs. Both may be read in a signal handler of the host. */
unsigned long long ekiden_ticks(void);
const char *ekiden_running_name(int *pid);

/*
 * Ends the machine with EKIDEN_EXIT_STUCK if no tick came for EKIDEN_WATCHDOG seconds of real time (an environment
 * variable; 0 or absent: no limit).
 */
void ekiden_start_watchdog(void);
#define EKIDEN_EXIT_STUCK 98

/*
 * Fills `data` from the seed in the environment variable EKIDEN_SEED, a hexadecimal number. Returns 0 if there is none.
 */
int ekiden_seeded_random(void *data, unsigned long length);

#endif
