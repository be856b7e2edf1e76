/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The connection of a packet, of IPv4 and IPv6, with up to two VLAN tags in the frame. */
#ifndef EKIDEN_AQM_PACKET_H
#define EKIDEN_AQM_PACKET_H

#include "aqm.h"

/* An IPv6 address, or a mapped IPv4 address (RFC 4291 section 2.5.5.2). */
union address {
	__u32 word[4];
	__u64 half[2];
};

/* The five-tuple of a connection, as `show` prints it. */
struct name {
	union address source;
	union address destination;
	__be16 ports[2]; /* of TCP and UDP, source first; 0 for fragments and other protocols */
	__u8 protocol;
	__u8 unused[3];
};

/* The connection of a packet, and whether it is ECN-capable. */
struct found {
	struct name name;
	__u32 capable;
	__u32 unused;
};

struct vlan_tag {
	__be16 tci;
	__be16 protocol;
};

struct ipv4 {
	__u8 version_and_length;
	__u8 traffic_class;
	__be16 length;
	__be16 id;
	__be16 fragment;
	__u8 time_to_live;
	__u8 protocol;
	__u16 checksum;
	__u32 source;
	__u32 destination;
};

struct ipv6 {
	__be32 version_class_label;
	__be16 length;
	__u8 next_header;
	__u8 hop_limit;
	union address source;
	union address destination;
};

#define IPV4_FRAGMENT 0x3fff /* the fragment offset and the flag "more fragments" */
#define ECN 3

/* Length of an Ethernet header. For interfaces with another header (`settings`), a helper of the kernel finds the IP header. */
#define ETHERNET 14

/*
 * Reads `*to` at `offset` after the link header: directly if the header is Ethernet and the data are in the linear part,
 * which is four times as fast as the helper.
 */
#define load(skb, ethernet, offset, to)                                                                                \
	({                                                                                                             \
		const void *from = (void *)(long)(skb)->data + ETHERNET + (offset);                                    \
		bool here = (ethernet) && from + sizeof(*(to)) <= (void *)(long)(skb)->data_end;                       \
		if (here)                                                                                              \
			__builtin_memcpy(to, from, sizeof(*(to)));                                                     \
		here || !bpf_skb_load_bytes_relative(skb, offset, to, sizeof(*(to)), BPF_HDR_START_NET);               \
	})

static __always_inline void read_ports(struct __sk_buff *skb, bool ethernet, __u32 offset, struct name *name)
{
	if (name->protocol == IPPROTO_TCP || name->protocol == IPPROTO_UDP)
		load(skb, ethernet, offset, &name->ports);
}

static __always_inline void map_address(union address *address, __u32 ipv4)
{
	address->word[2] = bpf_htonl(0xffff);
	address->word[3] = ipv4;
}

static __always_inline bool read_ipv4(struct __sk_buff *skb, bool ethernet, __u32 offset, struct found *found)
{
	struct ipv4 header;
	__u32 length;

	if (!load(skb, ethernet, offset, &header))
		return false;
	map_address(&found->name.source, header.source);
	map_address(&found->name.destination, header.destination);
	found->name.protocol = header.protocol;
	found->capable = (header.traffic_class & ECN) != 0;
	length = (header.version_and_length & 0xf) * 4;
	if (!(header.fragment & bpf_htons(IPV4_FRAGMENT)))
		read_ports(skb, ethernet, offset + length, &found->name);
	return true;
}

static __always_inline bool read_ipv6(struct __sk_buff *skb, bool ethernet, __u32 offset, struct found *found)
{
	struct ipv6 header;

	if (!load(skb, ethernet, offset, &header))
		return false;
	found->name.source = header.source;
	found->name.destination = header.destination;
	found->name.protocol = header.next_header;
	found->capable = (bpf_ntohl(header.version_class_label) >> 20 & ECN) != 0;
	read_ports(skb, ethernet, offset + sizeof(header), &found->name);
	return true;
}

/*
 * Returns whether the packet is IP, and then fills in `found`, which must be zero. A global function, because otherwise the
 * verifier would verify the code after the call for each kind of packet.
 */
__noinline int read_packet(struct __sk_buff *skb, struct found *found, bool ethernet)
{
	__u16 protocol = bpf_ntohs(skb->protocol);
	__u32 offset = 0;
	struct vlan_tag tag;

	if (!found)
		return false;
	for (int i = 0; i < 2 && (protocol == ETH_P_8021Q || protocol == ETH_P_8021AD); i++) {
		if (!load(skb, ethernet, offset, &tag))
			return false;
		protocol = bpf_ntohs(tag.protocol);
		offset += sizeof(tag);
	}
	if (protocol == ETH_P_IP)
		return read_ipv4(skb, ethernet, offset, found);
	return protocol == ETH_P_IPV6 && read_ipv6(skb, ethernet, offset, found);
}

/* `source_key` in aqm/mod.rs. */
static __always_inline __u32 source(const union address *address)
{
	const __u8 *bytes = (const __u8 *)address;
	__u32 hash = 0x811c9dc5;

	if (!address->half[0] && address->word[2] == bpf_htonl(0xffff))
		return bpf_ntohl(address->word[3]);
	for (int i = 0; i < 16; i++)
		hash = (hash ^ bytes[i]) * 0x01000193;
	return hash;
}

/*
 * The hash of a connection, with a secret key: with the hash of the laboratory (aqm/mod.rs), a remote host could make
 * connections that share one slot.
 */
static __always_inline __u32 hash(const struct name *name, __u64 key)
{
	__u64 ports = (__u64)name->ports[0] << 32 | (__u64)name->ports[1] << 16 | name->protocol;
	__u64 z = mix(key ^ name->source.half[1]);

	z = mix(z ^ name->destination.half[1]);
	if (name->source.half[0] | name->destination.half[0]) {
		z = mix(z ^ name->source.half[0]);
		z = mix(z ^ name->destination.half[0]);
	}
	return mix(z ^ ports) >> 32;
}

#endif
