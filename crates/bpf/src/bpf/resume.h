/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Careful Resume: N. Kuhn, E. Stephan, G. Fairhurst, R. Secchi, C. Huitema, "Convergence of Congestion Control from
 * Retained State", RFC 9959, 2026. The phases and the arithmetic, without types of the kernel. resume_socket.h has the hooks
 * of a congestion control.
 *
 * User space stores the window of a path and requests one jump for a connection with nothing in flight: a new connection,
 * whose RTT was measured by its handshake, or an idle one, whose window the kernel has reduced. The next transmission with
 * nothing in flight starts with the requested window.
 *
 * differences         | RFC 9959                           | here
 * --------------------+------------------------------------+----------------------------------------------------------------
 * observation         | of one sender, per remote endpoint | of user space, which saves, halves and discards it
 * Reconnaissance      | the initial window, acknowledged   | has ended: bytes were acknowledged before the request. The
 *                     |                                    | packets of the jump within the former window are only counted
 * when to jump        | when the window limits the sender  | at the first packet with nothing in flight: the kernel has no
 *                     |                                    | other call. A transmission within the former window does not
 *                     |                                    | use the request, which waits for the next one
 * RTT to reject       | at most half or more than 10 times | less than half or more than twice the saved one. It is the
 *                     | the saved one                      | smoothed one, as is that of the pace
 * pace                | the jump within one RTT            | the same, and never faster than SO_MAX_PACING_RATE. The kernel
 *                     |                                    | does not pace the first 10 packets of a connection. Afterwards
 *                     |                                    | the connection stays paced, at the kernel's 2 or 1.2 windows
 *                     |                                    | in an RTT
 * end of Unvalidated  | first acknowledgement of the jump, | the first one, counted in packets: with selective
 *                     | one RTT, or all of it sent         | acknowledgements and after reordering it is another packet. In
 *                     |                                    | every case no more is sent than the jump and the former window
 * PipeSize            | bytes; begins with the bytes in    | packets; begins with zero, as nothing is in flight. In Safe
 *                     | flight, grows by all bytes         | Retreat without retransmissions: they do not show the capacity
 *                     | acknowledged                       | of the path during the jump
 * Validating          | window = flight, then grows as     | the same, but not less than the former window
 *                     | the congestion control does        |
 * Safe Retreat, entry | window <= PipeSize / 2 at once     | ssthresh is PipeSize / 2, and the kernel reduces the window to it
 *                     |                                    | in the recovery, as packets arrive (PRR, RFC 6937): until then
 *                     |                                    | it sends for each packet that arrives less than half a packet
 * Safe Retreat        | the window stays as it was on      | ssthresh follows PipeSize / 2, and so does the window. A loss is
 *                     | entry                              | detected when a few packets of the jump have arrived, and at half
 *                     |                                    | of these the lost ones take a round trip for every few: 250
 *                     |                                    | packets over 10 Mbit/s, 100 ms and a queue of 10 packets took
 *                     |                                    | 2.6 s instead of 0.7 s without a jump. No other growth, except
 *                     |                                    | for slow start to PipeSize / 2 after a retransmission timeout
 * Safe Retreat, exit  | ssthresh <= PipeSize / 2           | the same, in the first acknowledgement after recovery
 * spurious loss       | not specified                      | the kernel detects it, but the window stays reduced
 * a second jump       | none after Safe Retreat            | none without another request: user space reads the phase
 */
#ifndef EKIDEN_RESUME_H
#define EKIDEN_RESUME_H

#include "growth.h"

/* The numbers are those of `ResumePhase` in congestion/resume.rs. */
enum resume_phase {
	RESUME_NONE,
	RESUME_WAITING, /* requested and not used yet */
	RESUME_REJECTED,
	RESUME_UNVALIDATED,
	RESUME_VALIDATING,
	RESUME_VALIDATED,  /* the RFC's Normal: all of the jump was acknowledged */
	RESUME_RETREATING, /* Safe Retreat */
	RESUME_RETREATED,  /* the RFC's Normal after Safe Retreat */
};

/* Why a request was rejected. The numbers are those of `ResumeRejection` in congestion/resume.rs. */
enum resume_reason {
	RESUME_ACCEPTED,
	RESUME_EXPIRED,
	RESUME_NO_RTT,
	RESUME_RTT_SHORTER,
	RESUME_RTT_LONGER,
	RESUME_CONGESTION, /* before the jump */
};

/* The layout is that of `ResumeWords` in congestion/resume.rs. */
struct resume {
	/* The request. */
	__u64 deadline_us; /* of CLOCK_MONOTONIC */
	__u32 jump_bytes;  /* the window to jump to */
	__u32 saved_rtt_us;
	/* The state. Windows and counts are in packets. */
	__u32 phase;
	__u32 reason;
	__u32 mss;    /* bytes in a packet, at the jump */
	__u32 before; /* the window before the jump */
	__u32 target; /* the window of the jump */
	__u32 sent;   /* in the Unvalidated phase */
	__u32 pipe;   /* PipeSize */
	/* Sequence numbers, and counters of the kernel at an earlier event. */
	__u32 first; /* the first byte of the jump */
	__u32 last;  /* the first byte after the jump */
	__u32 delivered;     /* before the jump */
	__u32 retransmitted; /* before Safe Retreat */
	__u32 unused;
};

/* The state of the connection at an event. */
struct flow {
	__u64 now_us;   /* of CLOCK_MONOTONIC */
	__u64 max_rate; /* SO_MAX_PACING_RATE, bytes per second */
	__u32 rtt_us;   /* smoothed; 0: unknown */
	__u32 mss;
	__u32 window;
	__u32 flight;    /* packets that are not acknowledged, not even selectively */
	__u32 delivered; /* packets since the start of the connection, as the next field */
	__u32 retransmitted;
	__u32 una; /* the first byte not acknowledged */
	__u32 nxt; /* the next byte to send */
};

static __always_inline __u32 resume_judge(const struct resume *r, const struct flow *f)
{
	if (f->now_us > r->deadline_us)
		return RESUME_EXPIRED;
	if (!f->rtt_us)
		return RESUME_NO_RTT;
	if ((__u64)f->rtt_us * 2 < r->saved_rtt_us)
		return RESUME_RTT_SHORTER;
	if (f->rtt_us > (__u64)r->saved_rtt_us * 2)
		return RESUME_RTT_LONGER;
	return RESUME_ACCEPTED;
}

static __always_inline void resume_reject(struct resume *r, __u32 reason)
{
	r->phase = RESUME_REJECTED;
	r->reason = reason;
}

/* Called before the first packet of a transmission. Returns the initial window, or 0 for no change. If the window is already
 * as large as the requested one, the request remains for a later transmission. */
static __always_inline __u32 resume_start(struct resume *r, const struct flow *f)
{
	__u32 target = r->jump_bytes / (f->mss ? f->mss : 1);
	__u32 reason = resume_judge(r, f);

	if (r->phase != RESUME_WAITING)
		return 0;
	if (reason != RESUME_ACCEPTED) {
		resume_reject(r, reason);
		return 0;
	}
	if (target <= f->window)
		return 0;
	r->phase = RESUME_UNVALIDATED;
	r->mss = f->mss;
	r->before = f->window;
	r->target = target;
	r->first = f->nxt;
	r->last = f->nxt;
	r->delivered = f->delivered;
	r->sent = 0;
	r->pipe = 0;
	return target;
}

/* The pacing rate of the jump in bytes per second: the whole jump within one RTT. With 2^32 bytes the product is below 2^52. */
static __always_inline __u64 resume_rate(const struct resume *r, const struct flow *f)
{
	__u64 rate = (__u64)r->target * r->mss * 1000000 / (f->rtt_us ? f->rtt_us : 1);

	return rate < f->max_rate ? rate : f->max_rate;
}

static __always_inline bool resume_is_past_jump(const struct resume *r, const struct flow *f)
{
	return (__s32)(f->una - r->last) >= 0;
}

/* Ends the jump with the packets in flight. */
static __always_inline void resume_end_jump(struct resume *r, const struct flow *f)
{
	r->pipe = f->delivered - r->delivered;
	r->sent = r->pipe + f->flight;
	r->last = f->nxt;
}

static __always_inline __u32 resume_use(struct resume *r, const struct flow *f)
{
	if (f->delivered - r->delivered > r->before) {
		resume_end_jump(r, f);
		r->phase = RESUME_VALIDATING;
		return larger(f->flight, r->before);
	}
	if (f->flight)
		return 0;
	/* The application sent no more than the former window. */
	r->phase = RESUME_WAITING;
	return r->before;
}

/* In Safe Retreat, retransmitted packets of the jump do not count. PipeSize never shrinks, because a retransmission is counted
 * when it is sent and not when it is delivered. */
static __always_inline void resume_measure(struct resume *r, const struct flow *f)
{
	__u32 arrived = smaller(f->delivered - r->delivered, r->sent);
	__u32 again = f->retransmitted - r->retransmitted;

	r->pipe = larger(r->pipe, arrived > again ? arrived - again : 0);
}

/* Called for an acknowledgement, before the congestion control and the kernel process it. Returns the new window, or 0 for no
 * change. */
static __always_inline __u32 resume_on_ack(struct resume *r, const struct flow *f)
{
	switch (r->phase) {
	case RESUME_UNVALIDATED:
		return resume_use(r, f);
	case RESUME_VALIDATING:
		r->pipe = smaller(f->delivered - r->delivered, r->sent);
		if (resume_is_past_jump(r, f))
			r->phase = RESUME_VALIDATED;
		return 0;
	case RESUME_RETREATING:
		resume_measure(r, f);
		return 0;
	}
	return 0;
}

/* Called at a loss, timeout or mark, before the congestion control reduces the window. */
static __always_inline void resume_on_congestion(struct resume *r, const struct flow *f)
{
	switch (r->phase) {
	case RESUME_WAITING:
		resume_reject(r, RESUME_CONGESTION);
		return;
	case RESUME_UNVALIDATED:
		resume_end_jump(r, f);
		break;
	case RESUME_VALIDATING:
		break;
	default:
		return;
	}
	r->retransmitted = f->retransmitted;
	r->phase = RESUME_RETREATING;
}

static __always_inline __u32 resume_half_pipe(const struct resume *r)
{
	return at_least_two(r->pipe / 2);
}

/* Returns the window at the loss for the congestion control: of the jump only the delivered packets. */
static __always_inline __u32 resume_proven(const struct resume *r, __u32 window)
{
	return r->phase == RESUME_RETREATING ? smaller(window, at_least_two(r->pipe)) : window;
}

/* `threshold` is the ssthresh of the congestion control. Returns that of the connection. */
static __always_inline __u32 resume_limit(const struct resume *r, __u32 threshold)
{
	return r->phase == RESUME_RETREATING ? smaller(threshold, resume_half_pipe(r)) : threshold;
}

/* `threshold` is ssthresh in Safe Retreat, after an acknowledgement. Returns the new one. */
static __always_inline __u32 resume_follow(const struct resume *r, __u32 threshold)
{
	return r->phase == RESUME_RETREATING ? larger(threshold, resume_half_pipe(r)) : threshold;
}

/* Whether the window may grow. `in_loss`: after a retransmission timeout. */
static __always_inline bool resume_can_grow(const struct resume *r, bool in_loss)
{
	return r->phase != RESUME_UNVALIDATED && (r->phase != RESUME_RETREATING || in_loss);
}

/* Called for an acknowledgement outside of recovery. Returns the new ssthresh, or 0 for no change. */
static __always_inline __u32 resume_leave_retreat(struct resume *r, const struct flow *f)
{
	if (r->phase != RESUME_RETREATING || !resume_is_past_jump(r, f))
		return 0;
	r->phase = RESUME_RETREATED;
	return resume_half_pipe(r);
}

#endif
