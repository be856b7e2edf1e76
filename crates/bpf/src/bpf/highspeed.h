/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The arithmetic of HighSpeed TCP; highspeed.bpf.c has the source.
 *
 * The table is computed from RFC 3649, and tests/highspeed.rs compares them. With
 *
 *     b(w) = (0.1 - 0.5) (log w - log 38) / (log 83000 - log 38) + 0.5      section 5
 *     p(w) = 1 / (12.8 w^1.2) = 0.078 / w^1.2                               section 5
 *     a(w) = w^2 p(w) 2 b(w) / (2 - b(w))                                   section 5
 *
 * a new row begins, as in appendix B, at the first window whose a(w) is more than one above that of the row before. At
 * the window where row i begins, counted from 0, the window grows by i + 1 packets in a round trip and shrinks by b/1024
 * of itself; between two rows both are on a straight line.
 */
#ifndef EKIDEN_HIGHSPEED_H
#define EKIDEN_HIGHSPEED_H

#include "growth.h"

#define HIGHSPEED_LOW_WINDOW 38 /* packets; Reno up to this window */
#define HIGHSPEED_ROWS 73

struct highspeed_row {
	__u32 window; /* the first of the row */
	__u32 b;
};

static const struct highspeed_row highspeed_table[HIGHSPEED_ROWS] = {
	{ 38, 512 }, { 118, 452 }, { 221, 418 }, { 347, 394 }, { 495, 375 }, { 663, 360 }, { 851, 346 },
	{ 1058, 335 }, { 1284, 324 }, { 1529, 315 }, { 1793, 307 }, { 2076, 299 }, { 2378, 292 }, { 2699, 285 },
	{ 3039, 279 }, { 3399, 273 }, { 3778, 267 }, { 4177, 262 }, { 4596, 257 }, { 5036, 252 }, { 5497, 247 },
	{ 5979, 243 }, { 6483, 238 }, { 7009, 234 }, { 7558, 230 }, { 8130, 226 }, { 8726, 222 }, { 9346, 219 },
	{ 9991, 215 }, { 10661, 212 }, { 11358, 208 }, { 12082, 205 }, { 12834, 202 }, { 13614, 199 },
	{ 14424, 196 }, { 15265, 193 }, { 16137, 190 }, { 17042, 187 }, { 17981, 184 }, { 18955, 181 },
	{ 19965, 178 }, { 21013, 176 }, { 22101, 173 }, { 23230, 170 }, { 24402, 168 }, { 25618, 165 },
	{ 26881, 162 }, { 28193, 160 }, { 29557, 157 }, { 30975, 155 }, { 32450, 152 }, { 33986, 150 },
	{ 35586, 148 }, { 37253, 145 }, { 38992, 143 }, { 40808, 140 }, { 42707, 138 }, { 44694, 135 },
	{ 46776, 133 }, { 48961, 131 }, { 51258, 128 }, { 53677, 126 }, { 56230, 123 }, { 58932, 121 },
	{ 61799, 118 }, { 64851, 116 }, { 68113, 113 }, { 71617, 110 }, { 75401, 108 }, { 79517, 105 },
	{ 84035, 102 }, { 89053, 99 }, { 94717, 95 },
};

struct highspeed {
	__u32 a; /* in 1/1024 of a packet */
	__u32 b; /* in 1/1024 of the window */
};

/* The last row that begins at or below this window. */
static __always_inline __u32 highspeed_row(__u32 window)
{
	__u32 row = 0;

	for (__u32 step = 64; step; step /= 2)
		if (row + step < HIGHSPEED_ROWS && highspeed_table[row + step].window <= window)
			row += step;
	return row;
}

static __always_inline struct highspeed highspeed_at(__u32 window)
{
	__u32 row = highspeed_row(window);
	struct highspeed at = { .a = PACKET, .b = 512 };
	const struct highspeed_row *here = &highspeed_table[row], *next = here + 1;
	__u32 past;

	if (window <= HIGHSPEED_LOW_WINDOW)
		return at;
	at.a += row * PACKET;
	at.b = here->b;
	if (row + 1 >= HIGHSPEED_ROWS)
		return at;
	past = (window - here->window) * PACKET / (next->window - here->window);
	at.a += past;
	at.b -= (here->b - next->b) * past / PACKET;
	return at;
}

static __always_inline void highspeed_grow(struct growth *growth, __u32 acked)
{
	grow_by_round(growth, highspeed_at(growth->window).a, acked);
}

static __always_inline __u32 highspeed_reduce(__u32 window)
{
	return at_least_two(window - ((__u64)window * highspeed_at(window).b >> 10));
}

#endif
