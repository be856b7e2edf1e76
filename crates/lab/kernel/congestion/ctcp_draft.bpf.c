/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Compound TCP closer to its draft, to find out what a result owes to the differences: CTCP_AS_DRAFT in ctcp_path.h. The
 * other differences that ctcp.bpf.c lists remain.
 */
#define CTCP_AS_DRAFT 1
#define CTCP_NAME "ctcp-draft"

/* The names that the kernel would have twice. */
#define ctcp ctcp_draft
#define ctcp_7_1 ctcp_draft_7_1
#define ctcp_cong_avoid ctcp_draft_cong_avoid
#define ctcp_cwnd_event ctcp_draft_cwnd_event
#define ctcp_cwnd_event_tx_start ctcp_draft_cwnd_event_tx_start
#define ctcp_pkts_acked ctcp_draft_pkts_acked
#define ctcp_set_state ctcp_draft_set_state
#define ctcp_undo_cwnd ctcp_draft_undo_cwnd

#include "ctcp.bpf.c"
