/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Shared memory between the aggregation point's programs and user space: the one place that defines
 * it. `src/aggregate/layout.rs` mirrors these types, and a test compares both. Numbers are in the order of the machine unless said otherwise. Times are those of
 * CLOCK_MONOTONIC in ns.
 */
#ifndef TIDEGATE_BPF_AGGREGATE_H
#define TIDEGATE_BPF_AGGREGATE_H

struct bpf_spin_lock {
	u32 val;
};

/* An application between this site and another one. */
struct application_key {
	u32 site;
	u16 application;
	u16 unused;
};

enum {
	FLOWS = 256, /* places for the active flows of an application */
	HELD = 4, /* arrivals after a gap */
	HEAD = 96, /* bytes of a packet that a notice repeats */
};

enum application_flag {
	PEER_STOP = 1, /* the other point's circuit breaker is open */
	PEER_ABSENT = 2, /* the latest packet from the other site had no probe */
	STARTED = 4, /* `expected` is set */
	HAS_STAMP = 8, /* `peer_stamp` is set */
	CONFIRMING = 16, /* `confirming` is set */
};

struct held {
	u64 at;
	u32 ahead; /* distance from `expected` */
	u32 size; /* bytes, with the ECN field in the upper two bits */
};

/* State and counters of an application. */
struct application {
	struct bpf_spin_lock lock;
	u32 random; /* state of its generator, not zero */
	u64 created;
	u64 latest; /* latest packet */
	/* To the other site. */
	u64 sent, sent_bytes, stopped;
	u64 unanswered; /* first packet since the latest probe; 0 none */
	u64 passed; /* latest packet that passed while stopped; 0 none */
	u64 sent_size; /* mean in 2^-16 bytes; 0 unknown */
	u32 next; /* sequence number */
	u32 notified;
	/* From the other site. */
	u64 received, received_bytes, lost, late, jumps, invalid_echoes;
	u64 received_size;
	u64 heard; /* latest probe; 0 none */
	u64 last; /* latest event of the stream */
	u64 interval; /* mean between probes in ns */
	u64 rtt_sum; /* of all samples, in ticks of 16 us */
	u64 rtt_samples;
	u64 outliers; /* since when all samples are outliers; 0 none */
	s64 due; /* virtual packets that are due, in 2^-32 */
	u64 missed; /* samples that found no space in the ring */
	u32 next_due; /* in 2^-32 */
	u32 expected; /* sequence number */
	u32 confirming; /* sequence number that would confirm a new stream */
	u32 peer_stamp;
	u32 flags; /* enum application_flag */
	u16 peer_available; /* code */
	u8 peer_loss; /* code */
	u8 shares;
	u32 held_count;
	u32 unused;
	struct held held[HELD];
	u32 flows[FLOWS]; /* second of the latest packet, plus one, by the low byte of the flow */
};

/* What user space has computed of an application. */
struct estimate {
	u64 lost_after; /* ns without an answer after which the peer is lost, besides its intervals */
	u32 fraction; /* of packets that are sampled, in 2^-32; the largest value is all */
	u32 rtt; /* ticks of 16 us; 0 unknown */
	u32 outlier; /* samples above are outliers, in ticks; 0 none */
	u16 deviation; /* code */
	u16 available; /* code, of the packets from the other site */
	u16 used; /* code, of the packets to the other site */
	u8 loss; /* code, of the packets from the other site */
	u8 flows;
	u8 stop; /* the circuit breaker is open */
	u8 unused[7];
};

/* Packets of a site: hosts and ports. Addresses in network order, IPv4 mapped into IPv6. */
struct rule {
	u32 remote[4], remote_mask[4];
	u32 local[4], local_mask[4];
	u32 site;
	u16 first_port, last_port;
};

enum { RULES = 64, SITES = 16, APPLICATION_WORDS = 1024 };

/* Applications that may exchange packets with a site, a bit each. */
struct allowed {
	u64 words[APPLICATION_WORDS];
};

enum sample_kind { SAMPLE_EVENTS, SAMPLE_NOTICE };

/* Losses and the arrival that follows them, as far as they are in the virtual stream. */
struct sample {
	u32 kind;
	u32 size; /* of the arrival in bytes; 0: it is not sampled */
	struct application_key key;
	u64 at; /* arrival */
	u64 lost_from; /* event before the losses */
	u64 lost_gap; /* ns between them */
	u32 lost; /* packets lost */
	u32 lost_sampled; /* of these in the virtual stream */
	u32 mean_size; /* of arriving packets in bytes; 0 unknown */
	u32 ecn;
};

/* The start of a packet whose source has to be notified, with the report for it. */
struct notice {
	u32 kind;
	u32 length; /* of `head` */
	u8 report[20];
	u8 head[HEAD];
	u32 unused;
};

enum counter {
	COUNT_REWRITTEN, COUNT_INVALID, COUNT_REFUSED, COUNT_UNKNOWN, COUNT_FORBIDDEN,
	COUNT_FRAGMENTS, COUNT_BATCHES, COUNT_DROPPED, COUNT_FAILED,
	COUNTERS,
};

struct counters {
	u64 counts[COUNTERS];
};

/* Set by user space. */
struct settings {
	u64 clock; /* time of the next packet, if `manual_clock` is set */
	u32 opening; /* applications that the other site has not answered, at most */
	u32 open; /* of these now: user space lowers it, the program raises it */
};

#endif
