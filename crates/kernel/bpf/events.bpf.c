/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Events of the kernel's own TCP. Each program runs at a tracepoint, returns at once for a socket
 * without subscribers, and only reads the kernel's state.
 */
#include "kernel.h"
#include "events.h"

/*
 * Some helpers want a licence that is compatible with the GPL. MIT, one of this file's two, is, but
 * the kernel knows it only by this name.
 */
char _license[] SEC("license") = "Dual MIT/GPL";

#define MAP(name, kind, flags, entries, value_type)						\
	struct {										\
		__uint(type, kind);								\
		__uint(map_flags, flags);							\
		__uint(max_entries, entries);							\
		__type(key, int);								\
		__type(value, value_type);							\
	} name SEC(".maps")

MAP(tg_subscribers, BPF_MAP_TYPE_SK_STORAGE, BPF_F_NO_PREALLOC, 0, struct subscribers);
MAP(tg_memory, BPF_MAP_TYPE_SK_STORAGE, BPF_F_NO_PREALLOC, 0, struct memory);
MAP(tg_service, BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE, 1, struct service);
/* The loader sets how many subscriptions and rings there are. */
MAP(tg_table, BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE, 1, struct subscription);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, int);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_RINGBUF);
		__uint(max_entries, 4096);
	});
} tg_rings SEC(".maps");

/* Microseconds of a jiffy; the loader sets it. */
const volatile u32 tick_us = 4000;

/*
 * Shortest phase that is reported, in ns. An application that writes small pieces would otherwise
 * change phase at each of them.
 */
#define MIN_PHASE 1000000
/* Of a longer series of missed time-outs, the numbers in a row show the rest. */
#define MAX_MISSED 4

/* A socket with subscribers. */
struct connection {
	struct tcp_sock *tcp;
	struct subscribers *subscribers;
	struct memory *memory;
};

/* An event on its way to all subscribers. */
struct message {
	struct subscribers *subscribers;
	struct record record; /* without what differs between them */
};

static __always_inline u32 ca_state(struct tcp_sock *tcp)
{
	struct inet_connection_sock *icsk = &tcp->inet_conn;

	return READ_BITS(icsk, icsk_ca_state);
}

static __always_inline u64 rto_us(struct tcp_sock *tcp)
{
	return (u64)tcp->inet_conn.icsk_rto * tick_us;
}

/* Time-outs so far. Linux before 6.7 counts only those in a row. */
static __always_inline s64 timeouts(struct tcp_sock *tcp)
{
	if (FIELD_EXISTS(tcp->total_rto))
		return tcp->total_rto;
	return tcp->inet_conn.icsk_retransmits;
}

/*
 * Variables that are members of `tcp_sock`: name, member, value. The kernel keeps srtt_us times
 * eight and mdev_us times four.
 */
#define CONN inet_conn
#define SOCK inet_conn.icsk_inet.sk
#define P(X, name, member) X(name, member, tcp->member)
#define MEMBERS(X)										\
	P(X, SND_WND, snd_wnd) P(X, CWND, snd_cwnd) P(X, SSTHRESH, snd_ssthresh)		\
	P(X, MSS, mss_cache) P(X, SND_UNA, snd_una) P(X, SND_NXT, snd_nxt)			\
	P(X, WRITE_SEQ, write_seq) P(X, BYTES_ACKED, bytes_acked)				\
	P(X, BYTES_SENT, bytes_sent) P(X, BYTES_RETRANS, bytes_retrans)				\
	P(X, PACKETS_OUT, packets_out) P(X, SACKED_OUT, sacked_out)				\
	P(X, LOST_OUT, lost_out) P(X, RETRANS_OUT, retrans_out)					\
	P(X, TOTAL_RETRANS, total_retrans) P(X, DELIVERED, delivered)				\
	P(X, RATE_DELIVERED, rate_delivered) P(X, RATE_INTERVAL, rate_interval_us)		\
	P(X, MIN_RTT, rtt_min.s[0].v) P(X, BACKOFF, CONN.icsk_backoff)				\
	P(X, RETRANSMITS, CONN.icsk_retransmits) P(X, PACING_RATE, SOCK.sk_pacing_rate)		\
	P(X, SNDBUF, SOCK.sk_sndbuf) P(X, WMEM_QUEUED, SOCK.sk_wmem_queued)			\
	P(X, TCP_STATE, SOCK.__sk_common.skc_state)						\
	X(RTO, CONN.icsk_rto, rto_us(tcp))							\
	X(SRTT, srtt_us, tcp->srtt_us >> 3) X(RTTVAR, mdev_us, tcp->mdev_us >> 2)		\
	X(RATE_APP_LIMITED, rate_app_limited, READ_BITS(tcp, rate_app_limited))			\
	X(CA_STATE, CONN.icsk_ca_state, ca_state(tcp))

/* Writes one record. An absent ring or a full one loses it, and counts that. */
static long deliver(u64 index, struct message *message)
{
	const struct record *event = &message->record;
	struct subscription *to;
	struct record *record = 0;
	u64 token, number, known;
	void *ring;
	u32 place;

	if (index >= MAX_SUBSCRIBERS)
		return 1;
	token = message->subscribers->tokens[index];
	if (!token)
		return 0;
	place = token;
	to = bpf_map_lookup_elem(&tg_table, &place);
	if (!to || to->token != token || !(to->events >> (event->kind & 31) & 1))
		return 0;
	if (event->kind == EVENT_ENDED)
		to->ended = 1;
	number = __sync_fetch_and_add(&to->number, 1) + 1;
	ring = bpf_map_lookup_elem(&tg_rings, &to->ring);
	if (ring)
		record = bpf_ringbuf_reserve(ring, sizeof(*record), 0);
	if (!record) {
		__sync_fetch_and_add(&to->lost, 1);
		return 0;
	}
	known = to->known;
	record->time = event->time;
	record->token = token;
	record->number = number;
	record->kind = event->kind;
	record->first = event->first;
	record->second = event->second;
	record->known = known;
	/* A mask instead of a branch: the verifier walks each only once. */
	for (int i = 0; i < VARIABLES; i++)
		record->values[i] = event->values[i] & -(known >> i & 1);
	bpf_ringbuf_submit(record, 0);
	return 0;
}

/* Takes the time and the variables, and delivers them to all subscribers. */
static __noinline void report(struct connection *c, enum event kind, u32 first, u64 second)
{
	struct tcp_sock *tcp = c->tcp;
	struct message message = {
		.subscribers = c->subscribers,
		.record = {
			.time = bpf_ktime_get_ns(),
			.kind = kind,
			.first = first,
			.second = second,
		},
	};
	u64 *values = message.record.values;

#define TAKE(name, member, value)								\
	if (FIELD_EXISTS(tcp->member))								\
		values[VAR_##name] = value;
	MEMBERS(TAKE)
	for (int i = 0; i < COUNTERS; i++)
		values[VAR_ACKS_SLOW_START + i] = c->memory->counters[i];
	/* Since Linux 5.17; the verifier then walks the body only once. */
	if (HELPER_EXISTS(loop))
		bpf_loop(MAX_SUBSCRIBERS, deliver, &message, 0);
	else
		for (u64 i = 0; i < MAX_SUBSCRIBERS; i++)
			deliver(i, &message);
}

/*
 * Checks which subscriptions are open. User space replaces the tokens of a socket as a whole, so
 * clearing one here overwrites none of its writes.
 */
static __noinline void refresh(struct subscribers *subscribers)
{
	u32 zero = 0;
	struct service *service = bpf_map_lookup_elem(&tg_service, &zero);
	u64 epoch, alive = 0;

	if (!service)
		return;
	/* Read before the tokens: one that ends meanwhile changes it again. */
	epoch = *(volatile u64 *)&service->epoch;
	for (int i = 0; i < MAX_SUBSCRIBERS; i++) {
		u64 token = subscribers->tokens[i];
		u32 place = token;
		struct subscription *of;

		if (!token)
			continue;
		of = bpf_map_lookup_elem(&tg_table, &place);
		if (of && of->token == token)
			alive = 1;
		else
			subscribers->tokens[i] = 0;
	}
	subscribers->epoch = epoch;
	subscribers->alive = alive;
}

/* Whether the socket has subscribers; all programs begin with it. */
static __always_inline bool find(struct sock *sk, struct connection *c)
{
	u32 zero = 0;
	struct service *service;

	/* Most sockets have no storage: one load is cheaper than a helper. */
	if (!sk->sk_bpf_storage)
		return 0;
	c->subscribers = bpf_sk_storage_get(&tg_subscribers, sk, 0, 0);
	if (!c->subscribers)
		return 0;
	/* A subscription ends in the table, without access to its socket. */
	service = bpf_map_lookup_elem(&tg_service, &zero);
	if (service && service->epoch != c->subscribers->epoch)
		refresh(c->subscribers);
	if (!c->subscribers->alive)
		return 0;
	c->memory = bpf_sk_storage_get(&tg_memory, sk, 0, 0);
	c->tcp = bpf_skc_to_tcp_sock(sk);
	return c->memory && c->tcp;
}

/* The socket is locked, so counters need no atomic operations. */
static void count(struct connection *c, enum variable counter)
{
	c->memory->counters[counter - VAR_ACKS_SLOW_START]++;
}

/* Reports the time-out `back` places before the last one but `present`. */
static void report_missed(struct connection *c, int back, int present)
{
	struct inet_connection_sock *icsk = &c->tcp->inet_conn;
	s64 row = (s64)icsk->icsk_retransmits - present - back + 1;
	u64 after = rto_us(c->tcp);

	/* The kernel doubled it after each. */
	if (icsk->icsk_backoff >= back)
		after >>= back;
	/* An acknowledgement resets the row. */
	report(c, EVENT_TIMEOUT, row > 0 ? row : 1, after);
}

/*
 * Reports time-outs at which the kernel ran none of these programs, about one in a hundred.
 * `present` is 1 where the kernel has counted the time-out that is happening, which the caller
 * reports.
 */
static __always_inline void missed_timeouts(struct connection *c, int present)
{
	s64 counted = timeouts(c->tcp), missed;

	/*
	 * First look at a socket with new subscribers: earlier time-outs are not theirs. User space
	 * cannot read the count, because that waits for the socket's lock, which its owner can hold
	 * for any time.
	 */
	if (c->memory->reported < 0) {
		/* Only the timer's handler runs with the timer stopped. */
		if (present && !c->tcp->inet_conn.icsk_pending)
			counted -= present;
		c->memory->reported = counted;
		return;
	}
	counted -= present;
	missed = counted - c->memory->reported;
	if (missed <= 0)
		return;
	c->memory->reported = counted;
	for (int back = MAX_MISSED; back > 0; back--)
		if (missed >= back)
			report_missed(c, back, present);
}

/* A window that shrinks to the threshold has not reached it from below. */
static void check_threshold(struct connection *c)
{
	u32 state = ca_state(c->tcp);
	enum side before = c->memory->side;

	if (state == TCP_CA_RECOVERY || state == TCP_CA_CWR) {
		c->memory->side = SIDE_REACHED;
	} else if (c->tcp->snd_cwnd < c->tcp->snd_ssthresh) {
		c->memory->side = SIDE_BELOW;
	} else {
		c->memory->side = SIDE_REACHED;
		if (before == SIDE_BELOW)
			report(c, EVENT_THRESHOLD, 0, 0);
	}
}

static void check_phase(struct connection *c)
{
	struct tcp_sock *tcp = c->tcp;
	u32 chrono = READ_BITS(tcp, chrono_type);
	enum phase before = c->memory->phase, now;
	u64 time;

	if (chrono == TCP_CHRONO_RWND_LIMITED)
		now = PHASE_RECEIVER;
	else if (chrono == TCP_CHRONO_SNDBUF_LIMITED)
		now = PHASE_SEND_BUFFER;
	else if (tcp->app_limited)
		now = PHASE_APPLICATION;
	else
		now = PHASE_NETWORK;
	if (now == before)
		return;
	time = bpf_ktime_get_ns();
	if (time < c->memory->phase_time + MIN_PHASE)
		return;
	c->memory->phase_time = time;
	c->memory->phase = now;
	count(c, VAR_PHASE_CHANGES);
	report(c, EVENT_PHASE, before, now);
}

/* Counted by the state in which a new acknowledgement finds the sender. */
static void new_ack(struct connection *c)
{
	u32 state = ca_state(c->tcp);

	c->memory->row = 0;
	/* The kernel's count of time-outs in a row starts again. */
	if (!FIELD_EXISTS(c->tcp->total_rto))
		c->memory->reported = 0;
	if (state == TCP_CA_RECOVERY || state == TCP_CA_CWR)
		count(c, VAR_ACKS_REPAIR);
	else if (c->tcp->snd_cwnd < c->tcp->snd_ssthresh)
		count(c, VAR_ACKS_SLOW_START);
	else
		count(c, VAR_ACKS_AVOIDANCE);
}

/*
 * A duplicate has no data and no flags while segments are out, and either a header longer than
 * usual, which means selective acknowledgements (RFC 6675, section 2), or an unchanged window (RFC
 * 5681, section 2).
 */
static void maybe_duplicate(struct connection *c, struct tcphdr *th, u32 length)
{
	struct tcp_options_received *options = &c->tcp->rx_opt;
	u32 window = __builtin_bswap16(th->window);

	window <<= READ_BITS(options, snd_wscale);
	if (th->flags & TCPHDR_FIN_SYN_RST)
		return;
	if ((u32)th->doff >> 4 << 2 != length || !c->tcp->packets_out)
		return;
	if (length <= c->tcp->tcp_header_len && window != c->tcp->snd_wnd)
		return;
	count(c, VAR_DUPLICATES);
	c->memory->row++;
	if (c->memory->row == 3)
		report(c, EVENT_THIRD_DUPLICATE, 0, 0);
	else if (c->memory->row > 3)
		count(c, VAR_FURTHER_DUPLICATES);
}

static __always_inline void check_ack(struct connection *c, struct sk_buff *skb)
{
	struct tcphdr th;
	s32 ahead;

	if (bpf_probe_read_kernel(&th, sizeof(th), skb->data) || !(th.flags & TCPHDR_ACK))
		return;
	/* Sequence numbers wrap, so the distance is signed. */
	ahead = __builtin_bswap32(th.ack_seq) - c->tcp->snd_una;
	if (ahead > 0)
		new_ack(c);
	else if (ahead == 0)
		maybe_duplicate(c, &th, skb->len);
}

/*
 * Defines the program of a tracepoint whose first argument is the socket. Its body runs for sockets
 * with subscribers only.
 */
#define TRACEPOINT(name)									\
	static __always_inline void on_##name(struct connection *c, const u64 *args);		\
	SEC("tp_btf/" #name) int name(const u64 *args)						\
	{											\
		struct connection c;								\
												\
		if (find((struct sock *)args[0], &c))						\
			on_##name(&c, args);							\
		return 0;									\
	}											\
	static __always_inline void on_##name(struct connection *c, const u64 *args)

/* (sk, ca_state): before the state changes, after window and threshold have. */
TRACEPOINT(tcp_cong_state_set)
{
	u8 next = args[1], before = ca_state(c->tcp);

	/*
	 * The timer's handler has stopped the timer. Other ways to this state, such as a receiver
	 * that drops selectively acknowledged data, or a smaller MTU, leave it running.
	 */
	if (next == TCP_CA_LOSS && !c->tcp->inet_conn.icsk_pending) {
		missed_timeouts(c, 0);
		/* The kernel counts it a little later. */
		c->memory->reported = timeouts(c->tcp) + 1;
		report(c, EVENT_TIMEOUT, c->tcp->inet_conn.icsk_retransmits + 1, rto_us(c->tcp));
		c->memory->row = 0;
		check_threshold(c);
	} else if (next == TCP_CA_LOSS || next == TCP_CA_RECOVERY) {
		if (before != TCP_CA_RECOVERY && before != next)
			report(c, EVENT_RECOVERY, c->memory->row, next);
	} else if (before >= TCP_CA_RECOVERY) {
		report(c, EVENT_RECOVERED, before, next);
	} else if (next == TCP_CA_CWR && before != next) {
		report(c, EVENT_REDUCED, 0, 0);
	}
}

/*
 * (sk, skb, error): after a segment was sent again. Reports a time-out that the program above did
 * not see, a few microseconds later.
 */
TRACEPOINT(tcp_retransmit_skb)
{
	s64 counted = timeouts(c->tcp);

	if (ca_state(c->tcp) != TCP_CA_LOSS)
		return;
	missed_timeouts(c, 1);
	if (c->memory->reported >= counted)
		return;
	c->memory->reported = counted;
	report(c, EVENT_TIMEOUT, c->tcp->inet_conn.icsk_retransmits, rto_us(c->tcp));
}

/* (sk, skb): a segment of an established connection, before it is processed. */
TRACEPOINT(tcp_probe)
{
	missed_timeouts(c, 0);
	check_ack(c, (struct sk_buff *)args[1]);
	check_threshold(c);
	check_phase(c);
}

/* (sk, result, flags): after the application has written. Since Linux 6.3. */
TRACEPOINT(sock_send_length)
{
	missed_timeouts(c, 0);
	check_threshold(c);
	check_phase(c);
}

/* (sk, old, new): before the state changes. */
TRACEPOINT(inet_sock_set_state)
{
	report(c, EVENT_STATE, args[1], args[2]);
}

/* (sk): before the connection's socket is freed. */
TRACEPOINT(tcp_destroy_sock)
{
	report(c, EVENT_ENDED, 0, 0);
}

/* Runs once, at load: it writes the variables that this kernel has. */
SEC("raw_tp")
int available(void *args)
{
	u32 zero = 0;
	struct service *service = bpf_map_lookup_elem(&tg_service, &zero);
	struct tcp_sock *tcp = 0;
	u64 bits = (1ULL << VARIABLES) - (1ULL << VAR_ACKS_SLOW_START);

#define HAS(name, member, value)								\
	if (FIELD_EXISTS(tcp->member))								\
		bits |= 1ULL << VAR_##name;
	MEMBERS(HAS)
	if (service)
		service->available = bits;
	return 0;
}
