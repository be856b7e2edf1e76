// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/ekiden-emulator: the emulator of the laboratory between interfaces of this kernel.
 *
 * A process writes a request and reads its answer. Frames that arrive at an attached interface go to the emulator, which
 * sends them at another one when they are due. The emulator itself is crates/emulator, linked into this kernel.
 */
#include <linux/hrtimer.h>
#include <linux/if_ether.h>
#include <linux/init.h>
#include <linux/miscdevice.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/virtio_net.h>
#include <net/net_namespace.h>
#include "emulator.h"

#define VNET_HEADER sizeof(struct virtio_net_hdr)
#define MAX_PORTS 512
#define MAX_REQUEST (16 << 20)
/* The pages of a sent superpacket have this order, as those of packet sockets. */
#define PAGE_ORDER 3

struct ekiden_port {
	struct ekiden_device *device;
	struct net_device *interface;
	size_t number;
};

struct ekiden_device {
	/* Guards the emulator, which interrupts enter, too. */
	spinlock_t lock;
	void *emulator;
	u64 started_at;
	struct hrtimer timer;
	size_t read_so_far;
	struct list_head list;
	size_t port_count;
	struct ekiden_port ports[MAX_PORTS];
};

/* All open files, for interfaces that are removed. Guarded by the RTNL. */
static LIST_HEAD(all_devices);

static u64 now_of(struct ekiden_device *device)
{
	return ktime_get_ns() - device->started_at;
}

/* Sends due packets, and sets the timer for the next event. The lock is held. */
static void advance(struct ekiden_device *device)
{
	u64 next = ekiden_emulation_advance(device->emulator, now_of(device));

	if (next != U64_MAX)
		hrtimer_start(&device->timer, ns_to_ktime(device->started_at + next), HRTIMER_MODE_ABS_SOFT);
}

static enum hrtimer_restart timer_expired(struct hrtimer *timer)
{
	struct ekiden_device *device = container_of(timer, struct ekiden_device, timer);

	spin_lock(&device->lock);
	advance(device);
	spin_unlock(&device->lock);
	/* advance() has set the timer again. */
	return HRTIMER_NORESTART;
}

static rx_handler_result_t port_receive(struct sk_buff **frame)
{
	struct sk_buff *skb = *frame;
	struct ekiden_port *port = rcu_dereference(skb->dev->rx_handler_data);
	struct ekiden_device *device = port->device;
	size_t size, length;
	u8 *buffer;

	skb_push(skb, skb->data - skb_mac_header(skb));
	length = VNET_HEADER + skb->len;
	spin_lock(&device->lock);
	buffer = ekiden_emulation_buffer(device->emulator, &size);
	if (buffer && length <= size &&
	    (virtio_net_hdr_from_skb(skb, (struct virtio_net_hdr *)buffer, virtio_legacy_is_little_endian(), true, 0) ||
	     skb_copy_bits(skb, 0, buffer + VNET_HEADER, skb->len)))
		length = size + 1;
	ekiden_emulation_receive(device->emulator, port->number, length, now_of(device));
	advance(device);
	spin_unlock(&device->lock);
	consume_skb(skb);
	return RX_HANDLER_CONSUMED;
}

int ekiden_port_open(struct ekiden_device *device, size_t number, const u8 *name, size_t length)
{
	struct ekiden_port *port = &device->ports[number];
	char interface[IFNAMSIZ] = {};
	int error;

	if (number >= MAX_PORTS || number != device->port_count || length >= IFNAMSIZ)
		return -EINVAL;
	memcpy(interface, name, length);
	port->interface = dev_get_by_name(current->nsproxy->net_ns, interface);
	if (!port->interface)
		return -ENODEV;
	port->device = device;
	port->number = number;
	error = netdev_rx_handler_register(port->interface, port_receive, port);
	if (error) {
		dev_put(port->interface);
		return error;
	}
	device->port_count++;
	return 0;
}

static void port_close(struct ekiden_port *port)
{
	if (!port->interface)
		return;
	netdev_rx_handler_unregister(port->interface);
	dev_put(port->interface);
	port->interface = NULL;
}

int ekiden_port_send(struct ekiden_device *device, size_t number, const u8 *head, size_t head_length, const u8 *body,
		     size_t body_length)
{
	struct net_device *interface = device->ports[number].interface;
	size_t length = head_length - VNET_HEADER + body_length;
	/* A receive buffer is charged with the memory of a packet, so it has to be that of a driver: one piece if it fits. */
	size_t linear = length < PAGE_SIZE ? length : head_length - VNET_HEADER;
	struct sk_buff *skb;
	int error;

	if (!interface)
		return -ENODEV;
	skb = alloc_skb_with_frags(LL_RESERVED_SPACE(interface) + linear, length - linear, PAGE_ORDER, &error, GFP_ATOMIC);
	if (!skb)
		return error;
	skb_reserve(skb, LL_RESERVED_SPACE(interface));
	skb_put(skb, linear);
	skb->data_len = length - linear;
	skb->len += length - linear;
	skb_store_bits(skb, 0, head + VNET_HEADER, head_length - VNET_HEADER);
	skb_store_bits(skb, head_length - VNET_HEADER, body, body_length);
	skb->dev = interface;
	skb_reset_mac_header(skb);
	skb->protocol = eth_hdr(skb)->h_proto;
	skb_set_network_header(skb, ETH_HLEN);
	if (virtio_net_hdr_to_skb(skb, (const struct virtio_net_hdr *)head, virtio_legacy_is_little_endian())) {
		kfree_skb(skb);
		return -EINVAL;
	}
	skb_probe_transport_header(skb);
	error = dev_queue_xmit(skb);
	return error > 0 ? net_xmit_errno(error) : error;
}

static int emulator_open(struct inode *inode, struct file *file)
{
	struct ekiden_device *device = kvzalloc(sizeof(*device), GFP_KERNEL);

	if (!device)
		return -ENOMEM;
	spin_lock_init(&device->lock);
	device->emulator = ekiden_emulation_new(device);
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
	hrtimer_init(&device->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
	device->timer.function = timer_expired;
#else
	hrtimer_setup(&device->timer, timer_expired, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
#endif
	file->private_data = device;
	rtnl_lock();
	list_add(&device->list, &all_devices);
	rtnl_unlock();
	return 0;
}

static int emulator_release(struct inode *inode, struct file *file)
{
	struct ekiden_device *device = file->private_data;

	rtnl_lock();
	list_del(&device->list);
	for (size_t i = 0; i < device->port_count; i++)
		port_close(&device->ports[i]);
	rtnl_unlock();
	hrtimer_cancel(&device->timer);
	ekiden_emulation_free(device->emulator);
	kvfree(device);
	return 0;
}

static ssize_t emulator_write(struct file *file, const char __user *data, size_t length, loff_t *offset)
{
	struct ekiden_device *device = file->private_data;
	u8 *request;
	int error;

	if (length > MAX_REQUEST)
		return -E2BIG;
	request = vmemdup_user(data, length);
	if (IS_ERR(request))
		return PTR_ERR(request);
	/* For ports that are opened. */
	rtnl_lock();
	spin_lock_bh(&device->lock);
	if (!device->started_at)
		device->started_at = ktime_get_ns();
	error = ekiden_emulation_request(device->emulator, request, length);
	device->read_so_far = 0;
	advance(device);
	spin_unlock_bh(&device->lock);
	rtnl_unlock();
	kvfree(request);
	return error ? error : length;
}

static ssize_t emulator_read(struct file *file, char __user *data, size_t length, loff_t *offset)
{
	struct ekiden_device *device = file->private_data;
	size_t answered;
	/* Only a request changes the answer, and a file has one user. */
	const u8 *answer = ekiden_emulation_answer(device->emulator, &answered);

	length = min(length, answered - device->read_so_far);
	if (copy_to_user(data, answer + device->read_so_far, length))
		return -EFAULT;
	device->read_so_far += length;
	return length;
}

static const struct file_operations emulator_operations = {
	.open = emulator_open,
	.release = emulator_release,
	.write = emulator_write,
	.read = emulator_read,
};

static struct miscdevice emulator_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ekiden-emulator",
	.mode = 0600,
	.fops = &emulator_operations,
};

/* An interface that is removed takes its port with it. */
static int interface_changed(struct notifier_block *block, unsigned long event, void *data)
{
	struct net_device *interface = netdev_notifier_info_to_dev(data);
	struct ekiden_device *device;

	if (event != NETDEV_UNREGISTER)
		return NOTIFY_DONE;
	list_for_each_entry(device, &all_devices, list)
		for (size_t i = 0; i < device->port_count; i++)
			if (device->ports[i].interface == interface)
				port_close(&device->ports[i]);
	return NOTIFY_DONE;
}

static struct notifier_block interface_notifier = { .notifier_call = interface_changed };

static int __init emulator_init(void)
{
	int error = register_netdevice_notifier(&interface_notifier);

	return error ? error : misc_register(&emulator_device);
}
device_initcall(emulator_init);
