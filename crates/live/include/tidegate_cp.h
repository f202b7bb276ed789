/* C-UDP: a UDP socket of an endpoint of the Coordination Protocol.
 *
 *     tg_cp_path path;
 *     tg_cp *cp = tg_cp_open(fd, 1, 2, 4);
 *     if (cp == NULL || tg_cp_send(cp, data, length) == -1)
 *         err(1, "C-UDP");
 *     ssize_t received = tg_cp_receive(cp, buffer, sizeof buffer, 100);
 *     if (tg_cp_get_path(cp, &path) == 0 && path.state == TG_CP_CURRENT)
 *         send_at(path.available_bps);
 *     tg_cp_close(cp);
 *
 * Link with -ltidegate_live. An installation has the options in `pkg-config --cflags --libs
 * tidegate-live`. All functions may be called from any thread. On failure a function that returns an int
 * or ssize_t returns -1, and one that returns a pointer NULL; errno has the reason. The guide is
 * docs/coordination-protocol.md.
 */
#ifndef TIDEGATE_CP_H
#define TIDEGATE_CP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A socket. */
typedef struct tg_cp tg_cp;

/* Whether the estimates may be followed. */
enum {
    /* no report was received: control the rate by yourself */
    TG_CP_UNKNOWN = 0,
    /* the estimates are current */
    TG_CP_CURRENT = 1,
    /* the aggregation point has lost that of the other site: control the rate by yourself */
    TG_CP_PEER_LOST = 2,
    /* no report for three round-trip times: control the rate by yourself */
    TG_CP_SILENT = 3,
    /* the circuit breaker is open: send no data */
    TG_CP_STOPPED = 4,
};

/* State of the path in the sending direction, from the newest report. */
typedef struct tg_cp_path {
    /* Smoothed round-trip time between the aggregation points, and its mean deviation; 0 if unknown. */
    uint64_t rtt_ns;
    uint64_t deviation_ns;
    /* Available bandwidth of one flowshare in bits per second; 0 if unknown. */
    uint64_t available_bps;
    /* Bandwidth that the application sends, in bits per second. */
    uint64_t sending_bps;
    /* Smoothed loss rate in 0..1; -1 if unknown. */
    double loss;
    /* One of the states above. */
    uint32_t state;
    /* Flowshares that the application may use; 0 before the first report. */
    uint32_t shares;
    /* Mean size of its packets in bytes, all headers included. */
    uint32_t packet_size;
    /* Its active flows at this site; 255 if there are more. */
    uint32_t flows;
} tg_cp_path;

/* C-UDP on a connected UDP socket, which becomes non-blocking. The labels are the application, unique
 * between the two sites, the flow within it, and the flowshares that it asks for, 1 to 64. The socket is
 * duplicated: the caller closes its own descriptor, before or after tg_cp_close. */
tg_cp *tg_cp_open(int fd, uint16_t application, uint16_t flow, uint8_t shares);

/* Releases the socket. No other function may be running with it. */
void tg_cp_close(tg_cp *cp);

/* Changes the flowshares that the application asks for. */
int tg_cp_set_shares(tg_cp *cp, uint8_t shares);

/* Sends a datagram with these data after the header. EAGAIN if the send buffer is full; ECONNREFUSED for
 * an earlier datagram. */
int tg_cp_send(tg_cp *cp, const void *data, size_t length);

/* Receives the data of the next datagram, and its estimates. Returns their length, of which at most size
 * bytes are copied; 0 for a datagram without data. EAGAIN after timeout_ms (negative: none), and when the
 * state becomes TG_CP_SILENT. Datagrams of other sources and applications, and those without a valid
 * header, are not received. */
ssize_t tg_cp_receive(tg_cp *cp, void *data, size_t size, int timeout_ms);

/* Estimates of the newest report, and their state now. */
int tg_cp_get_path(tg_cp *cp, tg_cp_path *path);

/* Received datagrams of the peer that were refused. */
uint64_t tg_cp_refused(tg_cp *cp);

#ifdef __cplusplus
}
#endif

#endif
