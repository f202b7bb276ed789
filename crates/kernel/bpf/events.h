/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Shared memory between the programs, this library and its clients: the one place that defines it.
 * `src/bpf/layout.rs` mirrors these types, and a test compares both with the BTF of the built
 * object. Numbers are in the order of the machine.
 */
#ifndef TIDEGATE_BPF_EVENTS_H
#define TIDEGATE_BPF_EVENTS_H

/* Kinds of events: `EventKind` in Rust. */
enum event {
	EVENT_TIMEOUT, EVENT_THRESHOLD, EVENT_THIRD_DUPLICATE, EVENT_RECOVERY, EVENT_RECOVERED,
	EVENT_REDUCED, EVENT_STATE, EVENT_PHASE, EVENT_ENDED,
};

/* Places in `record.values`, and bits of `known`: `Variable` in Rust. */
enum variable {
	VAR_SND_WND, VAR_CWND, VAR_SSTHRESH, VAR_RTO, VAR_SRTT, VAR_RTTVAR, VAR_MIN_RTT, VAR_MSS,
	VAR_SND_UNA, VAR_SND_NXT, VAR_WRITE_SEQ, VAR_BYTES_ACKED, VAR_BYTES_SENT,
	VAR_BYTES_RETRANS, VAR_PACKETS_OUT, VAR_SACKED_OUT, VAR_LOST_OUT, VAR_RETRANS_OUT,
	VAR_TOTAL_RETRANS, VAR_DELIVERED, VAR_RATE_DELIVERED, VAR_RATE_INTERVAL,
	VAR_RATE_APP_LIMITED, VAR_CA_STATE, VAR_BACKOFF, VAR_RETRANSMITS, VAR_PACING_RATE,
	VAR_SNDBUF, VAR_WMEM_QUEUED, VAR_TCP_STATE,
	/* The rest are `memory.counters`. */
	VAR_ACKS_SLOW_START, VAR_ACKS_AVOIDANCE, VAR_ACKS_REPAIR, VAR_DUPLICATES,
	VAR_FURTHER_DUPLICATES, VAR_PHASE_CHANGES,
	VARIABLES,
};

/* What limits a sender: `Phase` in Rust. */
enum phase {
	PHASE_UNKNOWN, PHASE_NETWORK, PHASE_APPLICATION, PHASE_SEND_BUFFER, PHASE_RECEIVER,
};

/* Side of the slow-start threshold on which the window is. */
enum side { SIDE_UNKNOWN, SIDE_BELOW, SIDE_REACHED };

enum {
	MAX_SUBSCRIBERS = 8, /* of one socket */
	COUNTERS = VARIABLES - VAR_ACKS_SLOW_START,
};

/* An event in a client's ring. */
struct record {
	u64 time; /* CLOCK_MONOTONIC, ns */
	u64 token; /* of the subscription */
	u64 number; /* within the subscription, from 1 */
	enum event kind;
	u32 first; /* first detail of the kind */
	u64 second; /* second detail of the kind */
	u64 known; /* variables that the subscriber may read */
	u64 values[VARIABLES]; /* zero where not known */
};

/* An entry of the table of subscriptions: one cache line. */
struct subscription {
	u64 token; /* 0 while unused; its lower half is the index */
	u32 events; /* kinds subscribed to, a bit each */
	u32 ended; /* 1 once the socket is destroyed */
	u64 number; /* events so far */
	u64 lost; /* of these, without room in the ring */
	u32 ring; /* index into the array of rings */
	u32 unused;
	u64 known; /* variables that the subscriber may read */
	u64 padding[2];
};

/* Storage of a socket: its subscribers. Only user space adds tokens. */
struct subscribers {
	u64 tokens[MAX_SUBSCRIBERS];
	u64 epoch; /* in which the tokens were last checked */
	u64 alive; /* 1 if a subscription was open then */
};

/* Storage of a socket: its past, as far as events need it. */
struct memory {
	enum side side;
	enum phase phase;
	u64 phase_time; /* of the last change of phase, ns */
	u64 row; /* duplicate ACKs in a row */
	/* What is above belongs to the present subscribers. */
	u64 counters[COUNTERS];
	s64 reported; /* time-outs reported, or -1 before the first look */
};

/* State of the service as a whole. */
struct service {
	u64 epoch; /* changes when a subscription ends */
	u64 available; /* variables that this kernel has, a bit each */
};

#endif
