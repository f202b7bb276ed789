/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Packets of traffic control: the context of its programs, headers, helpers. */
#ifndef TIDEGATE_BPF_PACKET_H
#define TIDEGATE_BPF_PACKET_H

#define htons(value) ((u16)__builtin_bswap16(value))
#define htonl(value) ((u32)__builtin_bswap32(value))

/* Of linux/bpf.h: the offsets are a stable interface. */
struct __sk_buff {
	u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto;
	u32 priority, ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid;
	u32 data, data_end, napi_id, family, remote_ip4, local_ip4, remote_ip6[4], local_ip6[4];
	u32 remote_port, local_port, data_meta;
	u64 flow_keys, tstamp;
	u32 wire_len, gso_segs;
};

enum { TC_ACT_UNSPEC = -1, TC_ACT_SHOT = 2 };
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_PERCPU_ARRAY = 6 };
enum { BPF_NOEXIST = 1, BPF_F_MARK_MANGLED_0 = 1 << 5, BPF_RB_NO_WAKEUP = 1 };

static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) =
	(void *)2;
static u32 (*bpf_get_prandom_u32)(void) = (void *)7;
static long (*bpf_skb_store_bytes)(struct __sk_buff *, u32 at, const void *from, u32 size,
				   u64 flags) = (void *)9;
static long (*bpf_l4_csum_replace)(struct __sk_buff *, u32 at, u64 from, u64 to, u64 flags) =
	(void *)11;
static long (*bpf_skb_pull_data)(struct __sk_buff *, u32 size) = (void *)39;
static long (*bpf_skb_load_bytes)(struct __sk_buff *, u32 at, void *to, u32 size) = (void *)26;
static s64 (*bpf_csum_diff)(const void *from, u32 from_size, const void *to, u32 to_size,
			    u32 seed) = (void *)28;
static void (*bpf_spin_lock)(struct bpf_spin_lock *) = (void *)93;
static void (*bpf_spin_unlock)(struct bpf_spin_lock *) = (void *)94;
static long (*bpf_ringbuf_output)(void *ring, const void *data, u64 size, u64 flags) =
	(void *)130;

enum { ETH_P_IP = 0x0800, ETH_P_IPV6 = 0x86dd };
enum { PROTOCOL_UDP = 17, PROTOCOL_FRAGMENT = 44 };

struct iphdr {
	u8 version_ihl, tos;
	u16 tot_len, id, frag_off;
	u8 ttl, protocol;
	u16 check;
	u32 saddr, daddr;
};

struct ipv6hdr {
	u8 first[4];
	u16 payload_len;
	u8 nexthdr, hop_limit;
	u32 saddr[4], daddr[4];
};

struct udphdr {
	u16 source, dest, len, check;
};

#endif
