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
 * Link with -ltidegate_kernel; where it is installed, `pkg-config --cflags --libs tidegate-kernel`
 * says with what. All functions may be called from any thread. Those that return an
 * int answer -1 on failure, and those that return a pointer NULL; tg_events_error() says why and
 * what to do. docs/itcp.md has the guide.
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
    /* the retransmission timer ran out; detail: time-outs in a row, detail2: µs */
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
    /* what limits the sender: 1 network, 2 application, 3 send buffer, 4 receiver; detail: before, detail2: now */
    TG_PHASE = 7,
    /* the socket is gone; every subscriber hears of it */
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
    /* Of these, held to be lost. */
    TG_V_LOST_OUT = 16,
    /* Of these, retransmitted and out. */
    TG_V_RETRANS_OUT = 17,
    /* Segments retransmitted ever. */
    TG_V_TOTAL_RETRANS = 18,
    /* Segments delivered ever, also selectively. */
    TG_V_DELIVERED = 19,
    /* Segments of the latest sample of the delivery rate. */
    TG_V_RATE_DELIVERED = 20,
    /* Time of that sample, in µs. */
    TG_V_RATE_INTERVAL = 21,
    /* 1 if the application limited that sample. */
    TG_V_RATE_APP_LIMITED = 22,
    /* Congestion state, a number of CaState. */
    TG_V_CA_STATE = 23,
    /* How often the time-out is doubled. */
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
    /* How often what limits the sender has changed. */
    TG_V_PHASE_CHANGES = 35,
    TG_VARIABLES = 36
};
#define TG_ALL_VARIABLES ((UINT64_C(1) << TG_VARIABLES) - 1)

/* Something that happened. */
typedef struct tg_event {
    uint64_t time_ns;      /* on CLOCK_MONOTONIC */
    uint64_t subscription;
    uint64_t number;       /* of this subscription, from 1; a gap is what was dropped */
    uint32_t kind;
    uint32_t detail;
    uint64_t detail2;
    uint64_t known;        /* which variables there are */
    uint64_t variables[TG_VARIABLES];
} tg_event;

typedef struct tg_events tg_events;
typedef void (*tg_callback)(const tg_event *event, void *user);

/* From the daemon where one answers (TIDEGATE_EVENTS_SOCKET, else /run/tidegate/events.sock), else
 * without privilege. */
tg_events *tg_events_open(void);
/* From the daemon at this path. */
tg_events *tg_events_connect(const char *path);
/* The same with a ring of so many bytes: a power of two, from 4096 on. Otherwise it has 1 MiB. It has no
 * more than the policy gives. An event takes 344, and one that finds no room is dropped
 * (tg_events_tally). */
tg_events *tg_events_connect_with(const char *path, uint32_t ring);
/* From the kernel, without a daemon: this process loads the programs for itself. Needs CAP_BPF and
 * CAP_PERFMON. */
tg_events *tg_events_in_process(void);
/* Without privilege: some events are weaker, the error queue of the sockets is read here, and
 * what is written has to go through tg_events_write, which changes how the stream is cut into
 * segments. */
tg_events *tg_events_unprivileged(void);
/* Ends all subscriptions, callbacks and signals, and kills the programs that run. */
void tg_events_close(tg_events *events);

/* 1 if events come from the kernel itself, 0 if without privilege. */
int tg_events_from_kernel(const tg_events *events);
/* Why tg_events_open found no daemon; NULL if it found one, or was not asked. */
const char *tg_events_why_unprivileged(const tg_events *events);
/* How this kind of event is weaker than it says above, for people to read; NULL if it is not, as all
 * are with the daemon. Without privilege tg_events_write cuts the stream into other segments too. */
const char *tg_events_weaker(const tg_events *events, uint32_t kind);
/* 1 if events can still come, 0 if the daemon is gone. tg_events_fd can be read from then on, a last
 * signal is sent, and callbacks just come no more. Events that came before may still be taken. */
int tg_events_is_serving(const tg_events *events);
/* For so long, at most 10 ms, whoever waits here for an event looks for it before going to sleep: no
 * waking up, and a busy processor all the while. 0, as at first, sleeps at once. Without privilege
 * it changes nothing. */
int tg_events_busy_poll(tg_events *events, uint32_t microseconds);
/* A descriptor that can be read when there are events, for poll and its kin. Not to be closed. */
int tg_events_fd(const tg_events *events);
/* What the policy allows. Either place may be NULL. */
int tg_events_allowed(const tg_events *events, uint32_t *kinds, uint64_t *variables);

/* Hears of these events of a connected TCP socket until it is closed. id may be NULL. */
int tg_events_subscribe(const tg_events *events, int socket, uint32_t kinds, uint64_t variables,
                        uint64_t *id);
int tg_events_change(const tg_events *events, uint64_t id, uint32_t kinds, uint64_t variables);
/* Events that are on their way still come, but none for a program (tg_events_run). */
int tg_events_cancel(const tg_events *events, uint64_t id);
/* How many events a subscription had, and how many of them were dropped because nobody read. */
int tg_events_tally(const tg_events *events, uint64_t id, uint64_t *count, uint64_t *lost);

/* Takes the oldest event: 1 if there was one, 0 if none came in time. A negative time is for ever. */
int tg_events_next(const tg_events *events, tg_event *event, int timeout_ms);
/* The state of a connection now, as far as the policy allows; variables has room for TG_VARIABLES.
 * Either place may be NULL. Sequence numbers in it count from zero, also with the daemon, while those
 * of the daemon's events are the kernel's. */
int tg_events_probe(const tg_events *events, int socket, uint64_t *known, uint64_t *variables);
/* Has the sequence numbers of an event count from zero too, so that they can be compared with those of a
 * probe. It needs TG_V_SND_UNA and TG_V_BYTES_ACKED. */
int tg_count_from_zero(uint64_t known, uint64_t *variables);
/* Writes as send(2) does, in the way that the source of events needs. */
ssize_t tg_events_write(const tg_events *events, int socket, const void *bytes, size_t length);

/* Sends this signal to the calling thread whenever there are events; 0 ends that. Take the events
 * outside of the signal's handler: sigwaitinfo, signalfd, or a flag. */
int tg_events_signal(const tg_events *events, int signal);
/* All events were taken: the next signal comes without delay. Else it comes when that is noticed, within
 * 10 ms. */
int tg_events_rearm(const tg_events *events);
/* Calls this for each event, on a thread of its own; NULL ends that, and comes back when the last
 * call is over. The callback may subscribe, change and cancel, and call this: that ends it when it
 * comes back, and the next one is called after that. It must not close events. */
int tg_events_call(const tg_events *events, tg_callback callback, void *user);

/* T-ware: a program that is started once for each event of a subscription, as a child of this process and
 * with its rights. Its arguments are these, and then the descriptor of the socket (3, or - if it is closed
 * already), the event's name and its time in ns on CLOCK_MONOTONIC. The same and the state are in its
 * environment: TIDEGATE_SOCKET, TIDEGATE_EVENT, TIDEGATE_TIME, TIDEGATE_DETAILS, and TIDEGATE_CWND and so
 * on for each variable that the subscription has. */
typedef struct tg_program {
    const char *program;          /* its path */
    const char *const *arguments; /* in UTF-8, and a NULL behind the last; NULL: none */
    uint32_t limit_ms;            /* killed, with its process group, when it takes longer; 0: 5000 */
    uint32_t at_once;             /* when so many of all programs run, no more is started; 0: 8 */
} tg_program;

/* What can go wrong with a program, and what the detail of the report is then. */
enum {
    TG_FAULT_FAILED = 0,      /* it ended with an error; its status, as wait(2) has it */
    TG_FAULT_NOT_STARTED = 1, /* it cannot be started; errno */
    TG_FAULT_TOO_MANY = 2,    /* not started, because so many run */
    TG_FAULT_TOO_SLOW = 3,    /* killed after so many ms */
    TG_FAULT_UNKNOWN = 4,     /* how it ends cannot be known: SIGCHLD is ignored, or another waits for all
                               * children; errno; once for each program */
};

/* Something that went wrong with a program. All of it is valid during the call. */
typedef struct tg_report {
    const char *program;
    const char *text; /* for people: what happened, and what to change */
    uint32_t kind;    /* of the event */
    uint32_t fault;
    int64_t detail;
} tg_report;

typedef void (*tg_report_callback)(const tg_report *report, void *user);

/* Subscribes as tg_events_subscribe does, and starts the program for each event. The description is
 * copied. A program gets the socket as long as it is open at the same descriptor. From the first call
 * on, a thread of the library takes all events of this handle: those of other subscriptions go to the
 * callback of tg_events_call, and are dropped where there is none. To take some with tg_events_next,
 * open a second handle. tg_events_cancel ends it, and what is on its way then goes nowhere; programs that
 * run go on. */
int tg_events_run(const tg_events *events, int socket, uint32_t kinds, uint64_t variables,
                  const tg_program *program, uint64_t *id);
/* Calls this for each program that could not be started, failed, or took too long, and once for one whose
 * end cannot be known, on the thread that looks after programs; NULL ends that. When it comes back the last
 * call of the one before is over, unless that asks for it itself. The callback must not close events. */
int tg_events_on_report(const tg_events *events, tg_report_callback callback, void *user);

/* Why the last call of this thread failed. Valid until the next one fails. */
const char *tg_events_error(void);
/* The name of a kind or a variable, or NULL. These, and the two texts about the unprivileged way, are
 * valid as long as the thread. */
const char *tg_event_name(uint32_t kind);
const char *tg_variable_name(uint32_t variable);

#ifdef __cplusplus
}
#endif

#endif
