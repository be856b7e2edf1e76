// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/host0, /dev/host1, /dev/host2: the standard input, output and error of the process that runs this kernel.
 *
 * A read or write blocks the whole virtual machine until the host has answered, and virtual time stands still meanwhile.
 * So the time that the host takes is not visible in the guest, unlike with the consoles, whose interrupts arrive at
 * times of the host.
 */
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/miscdevice.h>
#include <linux/minmax.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <os.h>
#include "ekiden.h"

#define CHUNK 65536

static int host_descriptor(struct file *file)
{
	return file->f_path.dentry->d_iname[4] - '0';
}

static ssize_t host_read(struct file *file, char __user *data, size_t length, loff_t *offset)
{
	char *buffer = kmalloc(CHUNK, GFP_KERNEL);
	ssize_t count;

	if (!buffer)
		return -ENOMEM;
	ekiden_set_waiting_for_host(true);
	count = os_read_file(host_descriptor(file), buffer, min_t(size_t, length, CHUNK));
	ekiden_set_waiting_for_host(false);
	if (count > 0 && copy_to_user(data, buffer, count))
		count = -EFAULT;
	kfree(buffer);
	return count;
}

static ssize_t host_write(struct file *file, const char __user *data, size_t length, loff_t *offset)
{
	char *buffer = memdup_user(data, min_t(size_t, length, CHUNK));
	ssize_t count;

	if (IS_ERR(buffer))
		return PTR_ERR(buffer);
	ekiden_set_waiting_for_host(true);
	count = os_write_file(host_descriptor(file), buffer, min_t(size_t, length, CHUNK));
	ekiden_set_waiting_for_host(false);
	kfree(buffer);
	return count;
}

static const struct file_operations host_operations = {
	.read = host_read,
	.write = host_write,
};

static struct miscdevice devices[] = {
	{ .minor = MISC_DYNAMIC_MINOR, .name = "host0", .mode = 0666, .fops = &host_operations },
	{ .minor = MISC_DYNAMIC_MINOR, .name = "host1", .mode = 0666, .fops = &host_operations },
	{ .minor = MISC_DYNAMIC_MINOR, .name = "host2", .mode = 0666, .fops = &host_operations },
};

static int __init host_init(void)
{
	int error = 0;

	for (size_t i = 0; i < ARRAY_SIZE(devices) && !error; i++)
		error = misc_register(&devices[i]);
	return error;
}
device_initcall(host_init);
