/* T-ware after Figure 6 of Khan and Zaghal, "Symbiotic Rate Adaptation for Time Sensitive Elastic Traffic
 * with Interactive Transport": lowers the rate of a source after a timeout, and raises it again when the
 * backlog has drained. Bound to a socket with tg_events_run or Handler::Run:
 *
 *   loss_tware [--printed] RATE_FILE NORMAL_RATE DELAY_BOUND START  SOCKET EVENT TIME
 *
 * RATE_FILE is read by the source, such as `tidegate transcode --rate-from file:RATE_FILE`. NORMAL_RATE is in
 * b/s, DELAY_BOUND in s, START is the time of the first byte in ns on CLOCK_MONOTONIC. The last three are
 * appended by the library. The time limit of the program must exceed T_recovery.
 *
 *   cc -std=c11 -Wall -O2 -o loss_tware loss_tware.c -lm
 *
 * Figure 6b has m = 2I/RTT, which is no slope of a rate, H with a negative time span, and h_best by (6b), which
 * misses the bound by up to 41 %. Without --printed the program has m = I/RTT^2 and the highest rate that
 * keeps the bound, h = md(1 + sqrt(1 - 2Q/(md^2))). */

#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/tcp.h>
#include <math.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char usage[] = "usage: loss_tware [--printed] RATE_FILE NORMAL_RATE DELAY_BOUND START SOCKET EVENT TIME\n";

static int fail(const char *what)
{
    fprintf(stderr, "loss_tware: %s: %s\n", what, strerror(errno));
    return 1;
}

/* A number above zero, or -1. */
static double number(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(value) && value > 0 ? value : -1;
}

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

/* Replaces the file as a whole, so that a reader never sees half a rate. */
static bool write_rate(const char *path, double rate, struct stat *file)
{
    char temporary[PATH_MAX];
    if (snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid()) >= (int)sizeof temporary) {
        errno = ENAMETOOLONG;
        return false;
    }
    FILE *out = fopen(temporary, "w");
    if (out == NULL)
        return false;
    bool written = fprintf(out, "%.0fb/s\n", rate) > 0;
    written = fclose(out) == 0 && written;
    written = written && stat(temporary, file) == 0;
    if (!written || rename(temporary, path) != 0) {
        unlink(temporary);
        return false;
    }
    return true;
}

/* Whether another event has written the file since. */
static bool is_replaced(const char *path, const struct stat *ours)
{
    struct stat now;
    return stat(path, &now) != 0 || now.st_ino != ours->st_ino || now.st_mtim.tv_sec != ours->st_mtim.tv_sec ||
           now.st_mtim.tv_nsec != ours->st_mtim.tv_nsec;
}

int main(int count, char **arguments)
{
    bool printed = count > 1 && strcmp(arguments[1], "--printed") == 0;
    char **given = arguments + 1 + printed;
    if (count != 8 + printed) {
        fputs(usage, stderr);
        return 2;
    }
    const char *path = given[0];
    double normal = number(given[1]), d = number(given[2]), start = number(given[3]), event = number(given[6]);
    if (normal < 0 || d < 0 || start < 0 || event < 0) {
        fputs(usage, stderr);
        return 2;
    }
    /* The socket is "-" if it is closed. */
    if (strcmp(given[5], "timeout") != 0 || strcmp(given[4], "-") == 0)
        return 0;

    /* probeSocket(s, TCPstate); the descriptor is - if the socket is closed. */
    struct tcp_info state;
    socklen_t length = sizeof state;
    if (getsockopt(atoi(given[4]), IPPROTO_TCP, TCP_INFO, &state, &length) != 0)
        return fail("cannot read TCP_INFO of the socket");
    double rtt = state.tcpi_rtt / 1e6, segment = state.tcpi_snd_mss * 8.0;
    if (rtt <= 0) {
        errno = EAGAIN;
        return fail("no round trip has been measured");
    }

    /* H: bits sent over the time since the start. The figure has the start minus the event. */
    double sent = 8.0 * (state.tcpi_bytes_acked + 1.0 * state.tcpi_unacked * state.tcpi_snd_mss);
    double h_normal = event > start ? sent / ((event - start) / 1e9) : normal;
    double reaction = fmax((now_ns() - event) / 1e9, 0);
    double m = printed ? 2 * segment / rtt : segment / (rtt * rtt);
    double q = fmax(reaction * (h_normal - m * reaction / 2), 0);
    double root = (printed ? 2 : 1) - 2 * q / (m * d * d);
    /* Below d_min no rate keeps the bound; md is then the rate with the smallest delay. */
    double best = fmin(m * d * (1 + sqrt(fmax(root, 0))), normal);
    double recovery = best / m * (1 + sqrt(1 + 2 * q * m / (best * best)));

    struct stat ours;
    if (!write_rate(path, best, &ours))
        return fail(path);

    /* Recovery-T-ware of Figure 6c: the timer, and the normal rate unless a later event has set another. */
    struct timespec span = {.tv_sec = (time_t)recovery, .tv_nsec = (long)(fmod(recovery, 1) * 1e9)};
    while (nanosleep(&span, &span) != 0 && errno == EINTR)
        ;
    if (!is_replaced(path, &ours) && !write_rate(path, normal, &ours))
        return fail(path);
    return 0;
}
