/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Aggregation point of the Coordination Protocol, on the interface to the endpoints of a site.
 * `outbound` numbers and stamps what endpoints send. `inbound` measures round trips, finds gaps,
 * samples packets and losses for the virtual packet stream (bandwidth filtered loss detection), and
 * reports to endpoints what user space estimates. Other packets pass unchanged.
 *
 * The rules are those of `aggregate::AggregationPoint` in Rust, with integers; a test compares both
 * packet by packet.
 */
#include "kernel.h"
#include "aggregate.h"
#include "packet.h"

char _license[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct application_key);
	__type(value, struct application);
} tg_apps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct application_key);
	__type(value, struct estimate);
} tg_estimates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RULES);
	__type(key, u32);
	__type(value, struct rule);
} tg_rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SITES);
	__type(key, u32);
	__type(value, struct allowed);
} tg_allowed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct settings);
} tg_settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counters);
} tg_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} tg_samples SEC(".maps");

/* Arrivals that a packet has released, with the losses before each. */
struct released {
	struct sample entries[HELD];
	u32 count;
};

/* Too large for the stack. Programs of traffic control are not interrupted by each other. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct released);
} tg_released SEC(".maps");

/* Set by the loader. */
const volatile u32 link_header = 14; /* bytes before the IP header */
const volatile u32 rules = 0;
const volatile u32 max_shares = 64;
const volatile u32 reordering = 3; /* 1 to HELD */
const volatile u32 drops_strangers = 0;
const volatile u32 manual_clock = 0; /* tests set the time of each packet */

#define TICK 16000
#define MASK 0xffffff
#define SECOND 1000000000ULL
#define ONE (1LL << 32)
#define ALL 0xffffffffU
enum { HEADERS = 60 + 8 + 20 }; /* IPv4 with all options, UDP, CP */
enum { CP_LENGTH = 20, CP_VERSION = 1, CP_MAX_SHARES = 64 };
enum { ORIGIN, PROBE, REPORT };
enum { MOST_LATE = 3000, MOST_MISSING = 3000, MAX_RTT = 625000 /* ticks */, KEEP_ALIVE = 48 };

struct cp {
	u8 first, shares;
	u8 application[2], flow[2], rest[14];
};

struct packet {
	struct application_key key;
	struct cp header;
	u64 now;
	u32 size; /* of the IP packet */
	u32 check_at, header_at;
	u8 ecn;
	bool has_check;
};

enum parsed { FOREIGN, STRANGER, VALID };

static __always_inline void count(enum counter counter)
{
	u32 zero = 0;
	struct counters *counters = bpf_map_lookup_elem(&tg_counters, &zero);

	if (counters)
		counters->counts[counter]++;
}

static __always_inline u64 clock(void)
{
	u32 zero = 0;
	struct settings *settings;

	if (!manual_clock)
		return bpf_ktime_get_ns();
	settings = bpf_map_lookup_elem(&tg_settings, &zero);
	return settings ? settings->clock : 0;
}

static __always_inline int stranger(void)
{
	if (!drops_strangers)
		return TC_ACT_UNSPEC;
	count(COUNT_DROPPED);
	return TC_ACT_SHOT;
}

static __always_inline bool matches(const u32 *address, const u32 *prefix, const u32 *mask)
{
	return !(((address[0] ^ prefix[0]) & mask[0]) | ((address[1] ^ prefix[1]) & mask[1]) |
		 ((address[2] ^ prefix[2]) & mask[2]) | ((address[3] ^ prefix[3]) & mask[3]));
}

/* The first rule that a packet matches, as `SiteTable::find`. */
static __always_inline bool find_site(const u32 *local, const u32 *remote, struct udphdr *udp,
				      u32 *site)
{
	u16 source = htons(udp->source), dest = htons(udp->dest);

	for (u32 i = 0; i < RULES; i++) {
		u32 number = i;
		struct rule *rule;

		if (i >= rules)
			return 0;
		rule = bpf_map_lookup_elem(&tg_rules, &number);
		if (!rule)
			return 0;
		if ((source < rule->first_port || source > rule->last_port) &&
		    (dest < rule->first_port || dest > rule->last_port))
			continue;
		if (matches(remote, rule->remote, rule->remote_mask) &&
		    matches(local, rule->local, rule->local_mask)) {
			*site = rule->site;
			return 1;
		}
	}
	return 0;
}

/* Finds the header of a packet of a site. */
static __always_inline enum parsed parse(struct __sk_buff *skb, struct packet *p, bool outbound)
{
	u32 at = link_header, source[4], destination[4], role, site, word, length;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct allowed *allowed;
	struct udphdr *udp;
	struct cp *header;
	u16 application;

	/* Headers in fragments of the buffer, which is rare. */
	if (data + at + HEADERS > end && skb->len > (u64)(end - data)) {
		u32 wanted = at + HEADERS;

		bpf_skb_pull_data(skb, wanted < skb->len ? wanted : skb->len);
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
	}
	if (skb->protocol == htons(ETH_P_IP)) {
		struct iphdr *ip = data + at;

		if ((void *)(ip + 1) > end || ip->protocol != PROTOCOL_UDP)
			return FOREIGN;
		if (ip->frag_off & htons(0x3fff)) {
			count(COUNT_FRAGMENTS);
			return FOREIGN;
		}
		source[0] = source[1] = destination[0] = destination[1] = 0;
		source[2] = destination[2] = htonl(0xffff);
		source[3] = ip->saddr;
		destination[3] = ip->daddr;
		p->ecn = ip->tos & 3;
		length = htons(ip->tot_len);
		at += (ip->version_ihl & 15) * 4;
	} else if (skb->protocol == htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = data + at;

		if ((void *)(ip + 1) > end)
			return FOREIGN;
		if (ip->nexthdr == PROTOCOL_FRAGMENT)
			count(COUNT_FRAGMENTS);
		if (ip->nexthdr != PROTOCOL_UDP)
			return FOREIGN;
		__builtin_memcpy(source, ip->saddr, 16);
		__builtin_memcpy(destination, ip->daddr, 16);
		p->ecn = ip->first[1] >> 4 & 3;
		length = sizeof(*ip) + htons(ip->payload_len);
		at += sizeof(*ip);
	} else {
		return FOREIGN;
	}
	udp = data + at;
	if ((void *)(udp + 1) > end)
		return FOREIGN;
	if (!find_site(outbound ? source : destination, outbound ? destination : source, udp,
		       &site))
		return FOREIGN;
	if (skb->gso_segs > 1) {
		count(COUNT_BATCHES);
		return FOREIGN;
	}
	p->check_at = at + __builtin_offsetof(struct udphdr, check);
	p->has_check = udp->check;
	p->header_at = at + sizeof(*udp);
	p->size = at - link_header + htons(udp->len);
	header = (void *)(udp + 1);
	if (p->size > length || link_header + length > skb->len)
		return FOREIGN;
	if (htons(udp->len) < sizeof(*udp) + CP_LENGTH || (void *)(header + 1) > end)
		goto invalid;
	p->header = *header;
	if (p->header.first >> 4 != CP_VERSION || !p->header.shares ||
	    p->header.shares > CP_MAX_SHARES)
		goto invalid;
	role = p->header.first >> 2 & 3;
	if (outbound ? role != ORIGIN : role > PROBE)
		goto invalid;
	application = p->header.application[0] << 8 | p->header.application[1];
	p->key.site = site;
	p->key.application = application;
	p->key.unused = 0;
	allowed = bpf_map_lookup_elem(&tg_allowed, &site);
	word = application >> 6;
	if (!allowed || !(allowed->words[word & (APPLICATION_WORDS - 1)] >> (application & 63) & 1)) {
		count(COUNT_FORBIDDEN);
		return STRANGER;
	}
	p->now = clock();
	return VALID;
invalid:
	count(COUNT_INVALID);
	return STRANGER;
}

static __always_inline u32 get24(const u8 *from)
{
	return (u32)from[0] << 16 | from[1] << 8 | from[2];
}

static __always_inline void put24(u8 *to, u32 value)
{
	to[0] = value >> 16;
	to[1] = value >> 8;
	to[2] = value;
}

static __always_inline void put16(u8 *to, u32 value)
{
	to[0] = value >> 8;
	to[1] = value;
}

/*
 * Writes the header and corrects the checksum. A packet without checksum (0, IPv4) stays without,
 * and one whose checksum the device completes is left to it: the helper sees to both.
 */
static __always_inline void rewrite(struct __sk_buff *skb, struct packet *p, struct cp *to)
{
	/* 32 bits before Linux 6.13, 16 since. Errors are negative in 64 bits only. */
	s64 change = bpf_csum_diff(&p->header, sizeof(*to), to, sizeof(*to), 0);

	if (p->has_check &&
	    (change < 0 || bpf_l4_csum_replace(skb, p->check_at, 0, change, BPF_F_MARK_MANGLED_0))) {
		count(COUNT_FAILED);
		return;
	}
	if (bpf_skb_store_bytes(skb, p->header_at, to, sizeof(*to), 0))
		count(COUNT_FAILED);
	else
		count(COUNT_REWRITTEN);
}

/* Mean over about 64 data packets, in 2^-16 bytes. */
static __always_inline u64 mean(u64 before, u32 size)
{
	if (size <= KEEP_ALIVE)
		return before;
	if (!before)
		return (u64)size << 16;
	return before - before / 64 + ((u64)size << 16) / 64;
}

static __always_inline bool is_peer_lost(struct application *app, u64 lost_after, u64 now)
{
	if (app->flags & PEER_ABSENT)
		return 1;
	/* Without an estimate of the round-trip time there is no limit yet. */
	if (!lost_after || !app->heard || !app->unanswered || now < app->unanswered)
		return 0;
	return now - app->unanswered > lost_after + 4 * app->interval;
}

static __always_inline void report(struct application *app, const struct estimate *estimate,
				   struct packet *p, struct cp *to)
{
	bool lost = is_peer_lost(app, estimate->lost_after, p->now);
	u64 size = (app->sent_size + 0x8000) >> 16;

	*to = p->header;
	to->first = CP_VERSION << 4 | REPORT << 2 | lost << 1 | !!(app->flags & PEER_STOP);
	to->shares = app->shares;
	put24(to->rest, estimate->rtt);
	put16(to->rest + 3, estimate->deviation);
	to->rest[5] = app->peer_loss;
	put16(to->rest + 6, app->peer_available);
	put16(to->rest + 8, estimate->used);
	put16(to->rest + 10, size > 0xffff ? 0xffff : size);
	to->rest[12] = estimate->flows;
	to->rest[13] = 0;
}

/* Creates an application, unless too many wait for an answer of the other site. */
static __always_inline struct application *admit(struct packet *p)
{
	static const struct application none;
	struct application *app;
	u32 zero = 0, n;
	struct settings *settings = bpf_map_lookup_elem(&tg_settings, &zero);

	if (!settings)
		return 0;
	n = __sync_fetch_and_add(&settings->open, 1);
	if (n >= settings->opening ||
	    bpf_map_update_elem(&tg_apps, &p->key, &none, BPF_NOEXIST)) {
		__sync_fetch_and_add(&settings->open, -1);
		return bpf_map_lookup_elem(&tg_apps, &p->key);
	}
	app = bpf_map_lookup_elem(&tg_apps, &p->key);
	if (app) {
		app->created = p->now;
		app->random = bpf_get_prandom_u32() | 1;
		app->shares = 1;
	}
	return app;
}

static __always_inline const struct estimate *estimate_of(struct packet *p)
{
	static const struct estimate none = { .fraction = ALL };
	const struct estimate *estimate = bpf_map_lookup_elem(&tg_estimates, &p->key);

	return estimate ?: &none;
}

/* Asks user space to send a report to the source of the packet. */
static __always_inline void notify(struct __sk_buff *skb, struct cp *to)
{
	struct notice notice = { .kind = SAMPLE_NOTICE };
	u32 length = skb->len;

	if (length > HEAD)
		length = HEAD;
	if (length < CP_LENGTH || bpf_skb_load_bytes(skb, 0, notice.head, length))
		return;
	notice.length = length;
	__builtin_memcpy(notice.report, to, sizeof(notice.report));
	bpf_ringbuf_output(&tg_samples, &notice, sizeof(notice), 0);
}

SEC("classifier")
int outbound(struct __sk_buff *skb)
{
	const struct estimate *estimate;
	struct application *app;
	struct cp to, answer;
	bool stops = 0, lost;
	struct packet p = {};
	u32 seq, ticks;
	u64 held;

	switch (parse(skb, &p, 1)) {
	case FOREIGN: return TC_ACT_UNSPEC;
	case STRANGER: return stranger();
	case VALID: break;
	}
	app = bpf_map_lookup_elem(&tg_apps, &p.key);
	if (!app)
		app = admit(&p);
	if (!app) {
		count(COUNT_REFUSED);
		return stranger();
	}
	estimate = estimate_of(&p);
	to = p.header;
	ticks = (u32)(p.now / TICK) & MASK;
	bpf_spin_lock(&app->lock);
	app->latest = p.now;
	app->shares = to.shares > max_shares ? max_shares : to.shares;
	app->flows[to.flow[1]] = (u32)(p.now / SECOND) + 1;
	if (app->flags & PEER_STOP) {
		stops = app->passed && p.now - app->passed < SECOND;
		if (!stops)
			app->passed = p.now;
	}
	if (stops) {
		app->stopped++;
		bpf_spin_unlock(&app->lock);
		count(COUNT_DROPPED);
		return TC_ACT_SHOT;
	}
	app->sent++;
	app->sent_bytes += p.size;
	app->sent_size = mean(app->sent_size, p.size);
	if (!app->unanswered)
		app->unanswered = p.now;
	seq = app->next;
	app->next = (seq + 1) & MASK;
	to.first = CP_VERSION << 4 | PROBE << 2 | !!estimate->stop;
	to.shares = app->shares;
	put24(to.rest, seq);
	put24(to.rest + 3, ticks);
	__builtin_memset(to.rest + 6, 0, 5);
	held = (p.now - app->heard + TICK / 2) / TICK;
	if (app->flags & HAS_STAMP && held < 0xffff) {
		to.first |= 2;
		put24(to.rest + 6, app->peer_stamp);
		put16(to.rest + 9, held);
	}
	to.rest[11] = estimate->loss;
	put16(to.rest + 12, estimate->available);
	lost = is_peer_lost(app, estimate->lost_after, p.now);
	if (lost) {
		app->notified++;
		report(app, estimate, &p, &answer);
	}
	bpf_spin_unlock(&app->lock);
	if (lost)
		notify(skb, &answer);
	rewrite(skb, &p, &to);
	return TC_ACT_UNSPEC;
}

static __always_inline u32 draw(struct application *app)
{
	u32 x = app->random;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return app->random = x;
}

/*
 * How many of so many packets are in the virtual stream, as `Sampler::select` for each: one in each
 * unit of `due`, at a random position. All units that have passed have theirs, and the current one if
 * its position has passed.
 */
static __always_inline u32 select(struct application *app, u32 packets, u32 fraction)
{
	s64 due = app->due + (s64)((u64)packets * fraction);
	u32 position = app->next_due, rest, selected;

	if (fraction == ALL)
		return packets;
	app->due = due;
	if (due < 0)
		return 0;
	selected = (u64)due >> 32;
	rest = (u32)due;
	if (selected)
		position = draw(app);
	app->due = rest;
	app->next_due = position;
	if (selected < packets && rest >= position) {
		selected++;
		app->due -= ONE;
		app->next_due = draw(app);
	}
	return selected;
}

/* An arrival in its order, after `missing` lost packets. */
static __always_inline void release(struct application *app, struct sample *entry, u32 fraction,
				    u32 missing, u64 at, u32 size)
{
	u64 span = at > app->last ? at - app->last : 0;
	u32 bytes = size & 0x3fffffff;

	entry->at = at;
	entry->lost = missing;
	entry->lost_from = app->last;
	entry->lost_gap = span / (missing + 1);
	entry->lost_sampled = missing ? select(app, missing, fraction) : 0;
	entry->ecn = size >> 30;
	app->received_size = mean(app->received_size, bytes);
	entry->mean_size = (u32)((app->received_size + 0x8000) >> 16);
	entry->size = select(app, 1, fraction) ? bytes : 0;
	app->lost += missing;
	app->received++;
	/* Lost packets count with the mean size. */
	app->received_bytes += bytes + (u64)missing * entry->mean_size;
	if (at > app->last)
		app->last = at;
}

enum place { LATE, JUMP, OLDER, NEWEST };

/* Place of a packet in the stream, as `Gaps::on_arrival`. */
static __always_inline enum place place(struct application *app, u32 seq, u64 now, u32 size,
					struct released *out, u32 fraction, bool counts)
{
	u32 ahead = (seq - app->expected) & MASK, n, at;
	bool restarts = !(app->flags & STARTED), newest;

	out->count = 0;
	if (!restarts) {
		if (ahead > MASK - MOST_LATE)
			return LATE;
		if (ahead > MOST_MISSING) {
			if (!(app->flags & CONFIRMING) || app->confirming != seq) {
				app->flags |= CONFIRMING;
				app->confirming = (seq + 1) & MASK;
				return JUMP;
			}
			restarts = 1;
		}
	}
	if (restarts) {
		/* The size of the gap is unknown, so it counts as a single loss. */
		u32 missing = app->flags & STARTED ? 1 : 0;

		if (!missing)
			app->last = now;
		app->held_count = 0;
		app->flags = (app->flags | STARTED) & ~CONFIRMING;
		app->expected = (seq + 1) & MASK;
		app->last = now;
		if (counts) {
			release(app, &out->entries[0], fraction, missing, now, size);
			out->count = 1;
		}
		return NEWEST;
	}
	n = app->held_count;
	if (n >= HELD)
		n = app->held_count = 0;
	/* Insertion in order. */
	at = 0;
	for (u32 i = 0; i < HELD - 1; i++) {
		if (i < n && app->held[i].ahead < ahead)
			at = i + 1;
		if (i < n && app->held[i].ahead == ahead)
			return LATE;
	}
	newest = at == n;
	for (int i = HELD - 1; i > 0; i--)
		if ((u32)i > at && (u32)i <= n)
			app->held[i] = app->held[i - 1];
	at &= HELD - 1;
	app->held[at].ahead = ahead;
	app->held[at].at = now;
	app->held[at].size = size;
	n++;
	app->flags &= ~CONFIRMING;
	for (int i = 0; i < HELD; i++) {
		u32 missing = app->held[0].ahead;
		struct held front = app->held[0];

		if (!n || (missing && n < reordering))
			break;
		if (counts)
			release(app, &out->entries[i], fraction, missing, front.at, front.size);
		else if (front.at > app->last)
			app->last = front.at;
		out->count = i + 1;
		n--;
		for (int k = 0; k < HELD - 1; k++) {
			app->held[k] = app->held[k + 1];
			app->held[k].ahead -= missing + 1;
		}
		app->expected = (app->expected + missing + 1) & MASK;
	}
	app->held_count = n;
	if (!counts)
		out->count = 0;
	return newest ? NEWEST : OLDER;
}

/* A sample of the round-trip time, as `RoundTrip::on_echo`. */
static __always_inline void echo(struct application *app, const struct estimate *estimate,
				 struct packet *p)
{
	u32 held = (u32)p->header.rest[9] << 8 | p->header.rest[10];
	u32 ticks = (u32)(p->now / TICK) & MASK;
	u32 elapsed = (ticks - get24(p->header.rest + 6)) & MASK, sample;

	if (held == 0xffff)
		return;
	if (elapsed > MAX_RTT + held) {
		app->invalid_echoes++;
		return;
	}
	sample = elapsed > held ? elapsed - held : 1;
	if (estimate->outlier && sample > estimate->outlier) {
		if (!app->outliers)
			app->outliers = p->now;
		if (p->now - app->outliers < 2ULL * TICK * estimate->rtt)
			return;
	} else {
		app->outliers = 0;
	}
	app->rtt_sum += sample;
	app->rtt_samples++;
}

/* What the other point reports. */
static __always_inline void probe(struct application *app, struct packet *p)
{
	u32 available = (u32)p->header.rest[12] << 8 | p->header.rest[13];

	if (app->heard)
		app->interval += (p->now - app->heard) / 16 - app->interval / 16;
	app->latest = p->now;
	app->heard = p->now;
	app->peer_stamp = get24(p->header.rest + 3);
	app->unanswered = 0;
	app->peer_loss = p->header.rest[11];
	app->flags |= HAS_STAMP;
	if (p->header.first & 1)
		app->flags |= PEER_STOP;
	else
		app->flags &= ~PEER_STOP;
	/* Mantissa zero is unknown. */
	if (available & 0x7ff)
		app->peer_available = available;
}

SEC("classifier")
int inbound(struct __sk_buff *skb)
{
	const struct estimate *estimate;
	struct application *app;
	struct released *out;
	struct packet p = {};
	enum place where;
	struct cp to;
	u32 zero = 0;

	switch (parse(skb, &p, 0)) {
	case FOREIGN: return TC_ACT_UNSPEC;
	case STRANGER: return stranger();
	case VALID: break;
	}
	app = bpf_map_lookup_elem(&tg_apps, &p.key);
	if (!app) {
		count(COUNT_UNKNOWN);
		return stranger();
	}
	out = bpf_map_lookup_elem(&tg_released, &zero);
	if (!out)
		return TC_ACT_UNSPEC;
	out->count = 0;
	estimate = estimate_of(&p);
	bpf_spin_lock(&app->lock);
	if (p.header.first >> 2 & 1) {
		where = place(app, get24(p.header.rest), p.now, p.size | (u32)p.ecn << 30, out,
			      estimate->fraction, !estimate->stop);
		if (where == LATE)
			app->late++;
		else if (where == JUMP)
			app->jumps++;
		else if (p.header.first & 2)
			echo(app, estimate, &p);
		if (where == NEWEST)
			probe(app, &p);
		app->flags &= ~PEER_ABSENT;
	} else {
		app->flags |= PEER_ABSENT;
	}
	report(app, estimate, &p, &to);
	bpf_spin_unlock(&app->lock);
	for (u32 i = 0; i < HELD; i++) {
		struct sample *sample = &out->entries[i];

		if (i >= out->count)
			break;
		if (!sample->size && !sample->lost_sampled)
			continue;
		sample->kind = SAMPLE_EVENTS;
		sample->key = p.key;
		if (bpf_ringbuf_output(&tg_samples, sample, sizeof(*sample), BPF_RB_NO_WAKEUP))
			__sync_fetch_and_add(&app->missed, 1);
	}
	rewrite(skb, &p, &to);
	return TC_ACT_UNSPEC;
}
