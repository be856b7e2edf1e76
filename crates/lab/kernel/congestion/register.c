// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Registers the congestion controls of ekiden under their names. */
#include <linux/init.h>
#include "kernel.h"

extern struct tcp_congestion_ops bic, ctcp, ctcp_7_1, ctcp_draft, ctcp_draft_7_1, highspeed, hybla, scalable, vegas,
	westwood, westwood_7_1;

#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 1, 0)
#define THAT_FITS(control) &control
#else
#define THAT_FITS(control) &control##_7_1
#endif

static int __init congestion_init(void)
{
	struct tcp_congestion_ops *const controls[] = {
		&bic, THAT_FITS(ctcp), THAT_FITS(ctcp_draft), &highspeed, &hybla, &scalable, &vegas, THAT_FITS(westwood),
	};
	int error = 0;

	for (size_t i = 0; i < ARRAY_SIZE(controls) && !error; i++)
		error = tcp_register_congestion_control(controls[i]);
	return error;
}
late_initcall(congestion_init);
