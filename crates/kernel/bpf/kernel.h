/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the programs use of the kernel: members of its structures, numbers of its interface,
 * helpers.
 *
 * Structures list only the members that are read. Their order and offsets mean nothing: the loader
 * fills in those of the running kernel from its BTF (CO-RE), and answers FIELD_EXISTS() from it.
 */
#ifndef TIDEGATE_BPF_KERNEL_H
#define TIDEGATE_BPF_KERNEL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef signed int s32;
typedef unsigned long long u64;
typedef signed long long s64;
typedef _Bool bool;

#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))

/* Attributes of a map, which loaders read from the BTF of its definition. */
#define __uint(name, value) int(*name)[value]
#define __type(name, type) type *name
#define __array(name, type) type *name[]

/* Sequence of `enum bpf_field_info_kind` and `bpf_enum_value_kind` of libbpf. */
#define FIELD_OFFSET(field) __builtin_preserve_field_info(field, 0)
#define FIELD_SIZE(field) __builtin_preserve_field_info(field, 1)
#define FIELD_EXISTS(field) __builtin_preserve_field_info(field, 2)
#define FIELD_SHIFT_LEFT(field) __builtin_preserve_field_info(field, 4)
#define FIELD_SHIFT_RIGHT(field) __builtin_preserve_field_info(field, 5)
#define HELPER_EXISTS(name)									\
	__builtin_preserve_enum_value(*(enum bpf_func_id *)BPF_FUNC_##name, 0)

/*
 * Value of an unsigned bit field. `from` has to be a variable: each use of a longer path would be
 * relocated as a path of its own.
 */
#define READ_BITS(from, field)									\
	({											\
		const void *at = (const void *)(from) + FIELD_OFFSET((from)->field);		\
		u64 bits = 0;									\
												\
		/* Keeps the compiler from folding the offset into loads. */			\
		asm volatile("" : "+r"(at));							\
		switch (FIELD_SIZE((from)->field)) {						\
		case 1: bits = *(const u8 *)at; break;						\
		case 2: bits = *(const u16 *)at; break;						\
		case 4: bits = *(const u32 *)at; break;						\
		case 8: bits = *(const u64 *)at; break;						\
		}										\
		bits << FIELD_SHIFT_LEFT((from)->field) >> FIELD_SHIFT_RIGHT((from)->field);	\
	})

/* Of linux/bpf.h. */
enum { BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_ARRAY_OF_MAPS = 12 };
enum { BPF_MAP_TYPE_SK_STORAGE = 24, BPF_MAP_TYPE_RINGBUF = 27 };
enum { BPF_F_NO_PREALLOC = 1 << 0, BPF_F_MMAPABLE = 1 << 10 };
enum bpf_func_id { BPF_FUNC_loop = 181 };

struct sock;
struct tcp_sock;

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static void *(*bpf_sk_storage_get)(void *map, struct sock *, void *value, u64 flags) = (void *)107;
static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static void *(*bpf_ringbuf_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*bpf_ringbuf_submit)(void *record, u64 flags) = (void *)132;
static struct tcp_sock *(*bpf_skc_to_tcp_sock)(void *sk) = (void *)137;
static long (*bpf_loop)(u32 times, void *body, void *context, u64 flags) =
	(void *)BPF_FUNC_loop;

/* Of net/tcp.h and linux/tcp.h. */
enum { TCP_CA_CWR = 2, TCP_CA_RECOVERY = 3, TCP_CA_LOSS = 4 };
enum { TCP_CHRONO_RWND_LIMITED = 2, TCP_CHRONO_SNDBUF_LIMITED = 3 };
enum { TCPHDR_FIN_SYN_RST = 0x07, TCPHDR_ACK = 0x10 };

struct tcphdr {
	u16 source, dest;
	u32 seq, ack_seq;
	u8 doff; /* in its upper half, in words of four bytes */
	u8 flags;
	u16 window, check, urg_ptr;
};

#pragma clang attribute push(__attribute__((preserve_access_index)),				\
			     apply_to = record)

struct bpf_local_storage;

struct sock_common {
	unsigned char skc_state;
};

struct sock {
	struct sock_common __sk_common;
	struct bpf_local_storage *sk_bpf_storage;
	unsigned long sk_pacing_rate;
	int sk_sndbuf, sk_wmem_queued;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	u32 icsk_rto;
	u8 icsk_ca_state : 5;
	u8 icsk_retransmits, icsk_pending, icsk_backoff;
};

struct tcp_options_received {
	u16 snd_wscale : 4;
};

struct minmax {
	struct minmax_sample {
		u32 v;
	} s[3];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	struct tcp_options_received rx_opt;
	struct minmax rtt_min;
	u64 bytes_acked, bytes_sent, bytes_retrans;
	u32 snd_una, snd_nxt, snd_wnd, snd_cwnd, snd_ssthresh, write_seq, mss_cache;
	u32 srtt_us, mdev_us, packets_out, sacked_out, lost_out, retrans_out, total_retrans;
	u32 delivered, rate_delivered, rate_interval_us, app_limited;
	u16 tcp_header_len;
	u16 total_rto; /* since Linux 6.7 */
	u8 rate_app_limited : 1, chrono_type : 2;
};

struct sk_buff {
	unsigned int len;
	unsigned char *data;
};

#pragma clang attribute pop

#endif
