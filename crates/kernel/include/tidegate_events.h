/* Interactive TCP: events of the kernel's TCP for the applications that own the sockets.
 *
 *     tg_events *events = tg_events_open();
 *     tg_event event;
 *     if (events == NULL || tg_events_subscribe(events, fd, 1u << TG_TIMEOUT, 0, NULL) == -1)
 *         errx(1, "%s", tg_events_error());
 *     while (tg_events_next(events, &event, -1) == 1 && event.kind != TG_ENDED)
 *         printf("time-out %u in a row, after %llu us\n", event.detail, (unsigned long long)event.detail2);
 *     tg_events_close(events);
 *
 * Link with -ltidegate_kernel. An installation has the options in `pkg-config --cflags --libs
 * tidegate-kernel`. All functions may be called from any thread. On failure a function that returns an int
 * returns -1, and one that returns a pointer NULL; tg_events_error() has the reason and the fix. The guide
 * is docs/itcp.md.
 */
#ifndef TIDEGATE_EVENTS_H
#define TIDEGATE_EVENTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of events. A set of them has the bit 1 << kind for each. */
enum {
    /* the retransmission timer expired; detail: time-outs in a row, detail2: µs */
    TG_TIMEOUT = 0,
    /* the window reached the slow-start threshold */
    TG_THRESHOLD = 1,
    /* the third duplicate ACK in a row */
    TG_THIRD_DUPLICATE = 2,
    /* entry into fast recovery; detail: duplicate ACKs in a row */
    TG_RECOVERY = 3,
    /* the ACK that ends the repair; detail: congestion state before */
    TG_RECOVERED = 4,
    /* the window shrinks without a loss */
    TG_REDUCED = 5,
    /* detail: state before, detail2: state now (RFC 9293, as numbered by Linux) */
    TG_STATE = 6,
    /* limit of the sender: 1 network, 2 application, 3 send buffer, 4 receiver; detail: before, detail2: now */
    TG_PHASE = 7,
    /* the socket is closed; every subscription has this event */
    TG_ENDED = 8,
};
#define TG_ALL_EVENTS UINT32_C(0x1ff)

/* Variables of a connection. A set of them has the bit UINT64_C(1) << variable for each. */
enum {
    /* The receiver's window, in bytes. */
    TG_V_SND_WND = 0,
    /* Congestion window, in segments. */
    TG_V_CWND = 1,
    /* Slow-start threshold, in segments; 2³¹−1 is none. */
    TG_V_SSTHRESH = 2,
    /* Retransmission time-out, in µs. */
    TG_V_RTO = 3,
    /* Smoothed round-trip time, in µs. */
    TG_V_SRTT = 4,
    /* Its mean deviation, in µs. */
    TG_V_RTTVAR = 5,
    /* Least round-trip time of the last minutes, in µs. */
    TG_V_MIN_RTT = 6,
    /* Largest segment, in bytes of payload. */
    TG_V_MSS = 7,
    /* Sequence number of the first byte that is not acknowledged. */
    TG_V_SND_UNA = 8,
    /* Sequence number of the next byte to be sent. */
    TG_V_SND_NXT = 9,
    /* Sequence number of the next byte that the application writes. */
    TG_V_WRITE_SEQ = 10,
    /* Bytes acknowledged; the end that opened counts its SYN. */
    TG_V_BYTES_ACKED = 11,
    /* Bytes of payload sent, retransmissions included. */
    TG_V_BYTES_SENT = 12,
    /* Of these, retransmitted. */
    TG_V_BYTES_RETRANS = 13,
    /* Segments sent and not acknowledged. */
    TG_V_PACKETS_OUT = 14,
    /* Of these, acknowledged selectively. */
    TG_V_SACKED_OUT = 15,
    /* Of these, presumed lost. */
    TG_V_LOST_OUT = 16,
    /* Of these, retransmitted and outstanding. */
    TG_V_RETRANS_OUT = 17,
    /* Segments retransmitted in total. */
    TG_V_TOTAL_RETRANS = 18,
    /* Segments delivered in total, also selectively. */
    TG_V_DELIVERED = 19,
    /* Segments of the latest sample of the delivery rate. */
    TG_V_RATE_DELIVERED = 20,
    /* Time of that sample, in µs. */
    TG_V_RATE_INTERVAL = 21,
    /* 1 if the application limited that sample. */
    TG_V_RATE_APP_LIMITED = 22,
    /* Congestion state, a number of CaState. */
    TG_V_CA_STATE = 23,
    /* Doublings of the time-out. */
    TG_V_BACKOFF = 24,
    /* Time-outs in a row. */
    TG_V_RETRANSMITS = 25,
    /* Pacing rate, in bytes per second; all ones is none. */
    TG_V_PACING_RATE = 26,
    /* Room of the send buffer, in bytes of memory. */
    TG_V_SNDBUF = 27,
    /* Memory in the send buffer, in bytes. */
    TG_V_WMEM_QUEUED = 28,
    /* State of the connection, a number of TcpState. */
    TG_V_TCP_STATE = 29,
    /* Table 1, event 2: new ACKs in slow start, since the first subscription to the socket. */
    TG_V_ACKS_SLOW_START = 30,
    /* Table 1, event 2: new ACKs in congestion avoidance. */
    TG_V_ACKS_AVOIDANCE = 31,
    /* New ACKs in fast recovery or while the window shrinks. */
    TG_V_ACKS_REPAIR = 32,
    /* Duplicate ACKs (RFC 5681; RFC 6675 where they are selective). */
    TG_V_DUPLICATES = 33,
    /* Table 1, event 5: the fourth in a row and later ones. */
    TG_V_FURTHER_DUPLICATES = 34,
    /* Changes of the limit of the sender. */
    TG_V_PHASE_CHANGES = 35,
    TG_VARIABLES = 36
};
#define TG_ALL_VARIABLES ((UINT64_C(1) << TG_VARIABLES) - 1)

/* An event. */
typedef struct tg_event {
    uint64_t time_ns;      /* on CLOCK_MONOTONIC */
    uint64_t subscription;
    uint64_t number;       /* within the subscription, from 1; a gap is the number of dropped events */
    uint32_t kind;
    uint32_t detail;
    uint64_t detail2;
    uint64_t known;        /* set of the variables with values */
    uint64_t variables[TG_VARIABLES];
} tg_event;

typedef struct tg_events tg_events;
typedef void (*tg_callback)(const tg_event *event, void *user);

/* Uses the daemon if one answers (at TIDEGATE_EVENTS_SOCKET, by default /run/tidegate/events.sock).
 * Otherwise events come without privilege. */
tg_events *tg_events_open(void);
/* Uses the daemon at this path. */
tg_events *tg_events_connect(const char *path);
/* Uses the daemon at this path, with a ring of this size in bytes: a power of two, from 4096 on, and at
 * most what the policy allows. The default is 1 MiB. An event takes 344 bytes, and is dropped if the ring
 * has no room (tg_events_tally). */
tg_events *tg_events_connect_with(const char *path, uint32_t ring);
/* Loads the programs in this process, without a daemon. Needs CAP_BPF and CAP_PERFMON. */
tg_events *tg_events_in_process(void);
/* Uses neither privilege nor daemon. Some events are weaker, the application must not read the error queue
 * of the sockets, and has to write through tg_events_write, which changes the segments of the stream. */
tg_events *tg_events_unprivileged(void);
/* Ends all subscriptions, callbacks and signals, and kills the running programs. */
void tg_events_close(tg_events *events);

/* 1 if programs in the kernel send the events, 0 without privilege. */
int tg_events_from_kernel(const tg_events *events);
/* Why tg_events_open does not use a daemon; NULL if it does, or was not called. */
const char *tg_events_why_unprivileged(const tg_events *events);
/* How this kind of event is weaker than described above, as a text; NULL if it is not, as with the
 * daemon. */
const char *tg_events_weaker(const tg_events *events, uint32_t kind);
/* 1 if events can still come, 0 if the daemon is gone. In that case tg_events_fd stays readable, a last
 * signal is sent, and callbacks stop. Earlier events can still be taken. */
int tg_events_is_serving(const tg_events *events);
/* Sets how long a thread that waits for an event polls before it sleeps, up to 10 ms. That saves the
 * wake-up and occupies a processor. The default is 0: it sleeps at once. No effect without privilege. */
int tg_events_busy_poll(tg_events *events, uint32_t microseconds);
/* A descriptor that is readable when there are events, for poll(2). The caller must not close it. */
int tg_events_fd(const tg_events *events);
/* The events and variables that the policy allows. Either pointer may be NULL. */
int tg_events_allowed(const tg_events *events, uint32_t *kinds, uint64_t *variables);

/* Subscribes to events of a connected TCP socket until it is closed. id may be NULL. */
int tg_events_subscribe(const tg_events *events, int socket, uint32_t kinds, uint64_t variables,
                        uint64_t *id);
int tg_events_change(const tg_events *events, uint64_t id, uint32_t kinds, uint64_t variables);
/* Events in the queue still come, except those of a program (tg_events_run). */
int tg_events_cancel(const tg_events *events, uint64_t id);
/* The number of events of a subscription, and of those that were dropped for lack of room. */
int tg_events_tally(const tg_events *events, uint64_t id, uint64_t *count, uint64_t *lost);

/* Takes the oldest event: 1 if there was one, 0 if none came in time. A negative time-out is infinite. */
int tg_events_next(const tg_events *events, tg_event *event, int timeout_ms);
/* The present state of a connection, as far as the policy allows; variables has room for TG_VARIABLES.
 * Either pointer may be NULL. Its sequence numbers count from zero, also with the daemon, while those of
 * the daemon's events are the kernel's. */
int tg_events_probe(const tg_events *events, int socket, uint64_t *known, uint64_t *variables);
/* Makes the sequence numbers of an event count from zero, which makes them comparable with those of a
 * probe. Needs TG_V_SND_UNA and TG_V_BYTES_ACKED. */
int tg_count_from_zero(uint64_t known, uint64_t *variables);
/* Writes like send(2), in the way that the source of events needs. */
ssize_t tg_events_write(const tg_events *events, int socket, const void *bytes, size_t length);

/* Sends this signal to the calling thread when there are events; 0 ends that. Events should be taken
 * outside of the signal handler: sigwaitinfo, signalfd, or a flag. */
int tg_events_signal(const tg_events *events, int signal);
/* Reports that all events are taken, so that the next signal comes without delay. Otherwise it may come
 * up to 10 ms late. */
int tg_events_rearm(const tg_events *events);
/* Calls a function for each event, on a thread of its own. NULL ends that, and returns after the last
 * call. The callback may subscribe, change, cancel, and call this function; the change takes effect when
 * the callback returns. It must not close events. */
int tg_events_call(const tg_events *events, tg_callback callback, void *user);

/* T-ware: a program that is executed for each event of a subscription, as a child of this process with its
 * rights. Its arguments are these, the descriptor of the socket (3, or - if the socket is closed), the name
 * of the event and its time in ns on CLOCK_MONOTONIC. The environment has the same and the state:
 * TIDEGATE_SOCKET, TIDEGATE_EVENT, TIDEGATE_TIME, TIDEGATE_DETAILS, and one variable for each variable of
 * the subscription, such as TIDEGATE_CWND. */
typedef struct tg_program {
    const char *program;          /* its path */
    const char *const *arguments; /* in UTF-8, followed by NULL; NULL: none */
    uint32_t limit_ms;            /* a longer run is killed with its process group; 0: 5000 */
    uint32_t at_once;             /* limit of all programs that run at once; 0: 8 */
} tg_program;

/* Failures of a program, with the detail of the report. */
enum {
    TG_FAULT_FAILED = 0,      /* it ended with an error; its status as of wait(2) */
    TG_FAULT_NOT_STARTED = 1, /* it cannot be started; errno */
    TG_FAULT_TOO_MANY = 2,    /* not started; number of running programs */
    TG_FAULT_TOO_SLOW = 3,    /* killed at its limit; limit in ms */
    TG_FAULT_UNKNOWN = 4,     /* no exit status: SIGCHLD is ignored, or other code waits for all children;
                               * errno; reported once for each program */
};

/* A failed program. Valid during the call. */
typedef struct tg_report {
    const char *program;
    const char *text; /* the failure and the fix */
    uint32_t kind;    /* of the event */
    uint32_t fault;
    int64_t detail;
} tg_report;

typedef void (*tg_report_callback)(const tg_report *report, void *user);

/* Subscribes like tg_events_subscribe, and executes the program for each event. The description is copied.
 * A program inherits the socket as long as it is open at the same descriptor. From the first call on, a
 * thread of the library takes all events of this handle. Those of other subscriptions go to the callback of
 * tg_events_call, or are dropped without one. tg_events_next needs a second handle then. tg_events_cancel
 * ends the subscription and drops its events in the queue; running programs continue. */
int tg_events_run(const tg_events *events, int socket, uint32_t kinds, uint64_t variables,
                  const tg_program *program, uint64_t *id);
/* Calls a function for each failed program, on the thread that supervises the programs. NULL ends that. The
 * last call of the previous callback is over when this returns, unless that callback calls this. The
 * callback must not close events. */
int tg_events_on_report(const tg_events *events, tg_report_callback callback, void *user);

/* The error of the last failed call of this thread. Valid until the next failure. */
const char *tg_events_error(void);
/* The name of a kind or a variable, or NULL. These strings, and those of tg_events_why_unprivileged and
 * tg_events_weaker, are valid as long as the thread. */
const char *tg_event_name(uint32_t kind);
const char *tg_variable_name(uint32_t variable);

#ifdef __cplusplus
}
#endif

#endif
