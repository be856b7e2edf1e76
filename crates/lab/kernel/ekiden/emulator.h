/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The functions of crates/kernel-emulator, and those that it calls. One call runs at a time. Times are nanoseconds since
 * the emulator was started.
 */
#ifndef EKIDEN_EMULATOR_H
#define EKIDEN_EMULATOR_H

#include <linux/types.h>

struct ekiden_device;

/* Creates and frees the emulator behind an open file. */
void *ekiden_emulation_new(struct ekiden_device *device);
void ekiden_emulation_free(void *emulator);

/* Executes a request in JSON. Returns 0 or a negative error number. */
int ekiden_emulation_request(void *emulator, const u8 *request, size_t length);

/* The answer to the last request, valid until the next one; before the first one, the version of the emulator. */
const u8 *ekiden_emulation_answer(const void *emulator, size_t *length);

/* The buffer for the next frame, which is taken by ekiden_emulation_receive; NULL before the start. */
u8 *ekiden_emulation_buffer(void *emulator, size_t *size);

/* Takes the frame in the buffer. A length above the size of the buffer means that it did not fit. */
void ekiden_emulation_receive(void *emulator, size_t port, size_t length, u64 now);

/* Sends all packets that are due, and returns the time of the next event, or U64_MAX. */
u64 ekiden_emulation_advance(void *emulator, u64 now);

/* Provided by emulator.c. They return 0 or a negative error number. */
int ekiden_port_open(struct ekiden_device *device, size_t port, const u8 *name, size_t length);
int ekiden_port_send(struct ekiden_device *device, size_t port, const u8 *head, size_t head_length, const u8 *body,
		     size_t body_length);

#endif
