/* T-ware in C, unprivileged: programs per event, their errors, and a callback. The argument is the
 * output file of the programs. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "check.h"

static atomic_int calls;
static struct {
    const tg_events *events;
    atomic_int failed, not_started, too_many, too_slow, unknown, unknown_false;
} reports;

static void on_event(const tg_event *event, void *user) {
    CHECK(user == &calls && event->kind == TG_ENDED);
    atomic_fetch_add(&calls, 1);
}

static void on_report(const tg_report *report, void *user) {
    CHECK(user == &reports && report->kind == TG_STATE);
    CHECK(strstr(report->text, report->program) == report->text);
    switch (report->fault) {
    case TG_FAULT_FAILED:
        CHECK(WIFEXITED(report->detail) && WEXITSTATUS(report->detail) == 7);
        CHECK(strstr(report->text, "exit status: 7") != NULL);
        atomic_fetch_add(&reports.failed, 1);
        break;
    case TG_FAULT_NOT_STARTED:
        CHECK(strcmp(report->program, "/no/such/program") == 0 && report->detail == ENOENT);
        atomic_fetch_add(&reports.not_started, 1);
        break;
    case TG_FAULT_TOO_MANY:
        CHECK(report->detail >= 1);
        atomic_fetch_add(&reports.too_many, 1);
        break;
    case TG_FAULT_TOO_SLOW:
        CHECK(report->detail == 300);
        atomic_fetch_add(&reports.too_slow, 1);
        break;
    case TG_FAULT_UNKNOWN:
        CHECK(report->detail == ECHILD && strstr(report->text, "SIGCHLD") != NULL);
        if (strcmp(report->program, "/bin/false") == 0) {
            CHECK(atomic_fetch_add(&reports.unknown_false, 1) == 0);
        }
        atomic_fetch_add(&reports.unknown, 1);
        break;
    default:
        CHECK(!"a fault that there is");
    }
    /* The callback may set the callback. */
    CHECK(tg_events_on_report(reports.events, on_report, user) == 0);
}

static void wait_for(atomic_int *count) {
    for (int tries = 0; atomic_load(count) == 0; tries++) {
        CHECK(tries < GUARD_MS);
        CHECK(poll(NULL, 0, 1) == 0);
    }
}

/* Causes a change of state for which a program is executed. */
static void run(const tg_events *events, const tg_program *program) {
    int peer, ours = connected(&peer);
    CHECK(tg_events_run(events, ours, 1u << TG_STATE, TG_ALL_VARIABLES, program, NULL) == 0);
    CHECK(shutdown(ours, SHUT_WR) == 0);
    /* Both ends stay open, so that the program inherits its socket. */
}

static void reads(const char *path, char *text, size_t size) {
    struct stat file;
    for (int tries = 0; stat(path, &file) != 0 || file.st_size == 0; tries++) {
        CHECK(tries < GUARD_MS);
        CHECK(poll(NULL, 0, 1) == 0);
    }
    FILE *notes = fopen(path, "r");
    CHECK(notes != NULL && fgets(text, size, notes) != NULL);
    fclose(notes);
}

static struct {
    const tg_events *events;
    atomic_int held, go, ends, heard;
    uint64_t marker, first;
} holding;

/* Blocks later events until the flag is set. */
static void on_held(const tg_event *event, void *user) {
    CHECK(user == &holding);
    if (event->subscription != holding.marker) {
        if (atomic_load(&holding.heard) == 0) {
            holding.first = event->subscription;
        }
        atomic_store(&holding.heard, 1);
        return;
    }
    atomic_store(&holding.held, 1);
    for (int tries = 0; atomic_load(&holding.go) == 0; tries++) {
        CHECK(tries < GUARD_MS);
        CHECK(poll(NULL, 0, 1) == 0);
    }
    if (atomic_load(&holding.ends) != 0) {
        CHECK(tg_events_call(holding.events, NULL, NULL) == 0);
    }
    atomic_store(&holding.held, 0);
}

/* A program is cancelled while its event, a change of state, is queued behind another event. The event
 * is dropped: neither the callback nor a reader of events receives it. */
static void what_was_cancelled_is_for_nobody(void) {
    tg_events *events = tg_events_unprivileged();
    CHECK(events != NULL);
    holding.events = events;
    tg_program none = {.program = "/no/such/program"};
    for (int ends = 0; ends < 2; ends++) {
        int peer, ours = connected(&peer), other_peer, other = connected(&other_peer);
        uint64_t id, events_of_it = 0;
        atomic_store(&holding.go, 0);
        atomic_store(&holding.ends, ends);
        atomic_store(&holding.heard, 0);
        CHECK(tg_events_subscribe(events, ours, 1u << TG_STATE, 0, &holding.marker) == 0);
        CHECK(tg_events_call(events, on_held, &holding) == 0);
        CHECK(tg_events_run(events, other, 1u << TG_STATE, 0, &none, &id) == 0);
        CHECK(shutdown(ours, SHUT_WR) == 0);
        wait_for(&holding.held);
        CHECK(shutdown(other, SHUT_WR) == 0);
        for (int tries = 0; events_of_it == 0; tries++) {
            CHECK(tries < GUARD_MS);
            CHECK(poll(NULL, 0, 1) == 0);
            CHECK(tg_events_tally(events, id, &events_of_it, NULL) == 0);
        }
        CHECK(tg_events_cancel(events, id) == 0);
        CHECK(tg_events_cancel(events, holding.marker) == 0);
        atomic_store(&holding.go, 1);
        for (int tries = 0; atomic_load(&holding.held) != 0; tries++) {
            CHECK(tries < GUARD_MS);
            CHECK(poll(NULL, 0, 1) == 0);
        }
        /* A later event arrives, so the cancelled ones were dropped. */
        int last_peer, last = connected(&last_peer);
        uint64_t last_id;
        tg_event event;
        CHECK(tg_events_subscribe(events, last, 1u << TG_STATE, 0, &last_id) == 0);
        CHECK(shutdown(last, SHUT_WR) == 0);
        if (ends) {
            CHECK(tg_events_next(events, &event, GUARD_MS) == 1);
            CHECK(event.subscription == last_id);
        } else {
            wait_for(&holding.heard);
            CHECK(holding.first == last_id);
        }
    }
    tg_events_close(events);
}

int main(int count, char **words) {
    CHECK(count == 2);
    tg_events *events = tg_events_unprivileged();
    CHECK(events != NULL);
    reports.events = events;
    CHECK(tg_events_on_report(events, on_report, &reports) == 0);

    /* Invalid arguments. */
    tg_program nothing = {.program = NULL}, there = {.program = "/bin/true"};
    int peer, ours = connected(&peer);
    CHECK(tg_events_run(events, ours, 0, 0, NULL, NULL) == -1);
    CHECK(strstr(tg_events_error(), "the program is NULL") != NULL);
    CHECK(tg_events_run(events, ours, 0, 0, &nothing, NULL) == -1);
    CHECK(strstr(tg_events_error(), "path of the program is NULL") != NULL);
    CHECK(tg_events_run(events, STDERR_FILENO, 0, 0, &there, NULL) == -1);
    CHECK(tg_events_run(NULL, ours, 0, 0, &there, NULL) == -1);

    /* Arguments: the socket, the event, its time and the state, while the socket exists. Moved, so that the
     * file is never half there. */
    char script[512], file[256], text[512], socket_name[64], event_name[16];
    unsigned long long time, cwnd;
    int descriptor, other_peer, other = connected(&other_peer);
    snprintf(script, sizeof script,
             "f=%s.$2; echo $1 $2 $3 $TIDEGATE_CWND $(readlink /proc/self/fd/3) >$f.new; mv $f.new $f", words[1]);
    const char *notes[] = {"-c", script, "tware", NULL};
    tg_program writes = {.program = "/bin/sh", .arguments = notes};
    CHECK(tg_events_run(events, other, 1u << TG_STATE, TG_ALL_VARIABLES, &writes, NULL) == 0);
    CHECK(shutdown(other, SHUT_WR) == 0);
    snprintf(file, sizeof file, "%s.state", words[1]);
    reads(file, text, sizeof text);
    CHECK(sscanf(text, "%d %15s %llu %llu %63s", &descriptor, event_name, &time, &cwnd, socket_name) == 5);
    CHECK(descriptor == 3 && strcmp(event_name, "state") == 0 && time > 0 && cwnd > 0);
    CHECK(strncmp(socket_name, "socket:", 7) == 0);
    close(other_peer);
    close(other);
    snprintf(file, sizeof file, "%s.ended", words[1]);
    reads(file, text, sizeof text);
    CHECK(strncmp(text, "- ended ", 8) == 0);

    /* Failures. */
    const char *fails[] = {"-c", "exit 7", NULL}, *hangs[] = {"-c", "sleep 60", NULL};
    run(events, &(tg_program){.program = "/bin/sh", .arguments = fails});
    wait_for(&reports.failed);
    run(events, &(tg_program){.program = "/no/such/program"});
    wait_for(&reports.not_started);
    run(events, &(tg_program){.program = "/bin/sh", .arguments = hangs, .limit_ms = 300});
    wait_for(&reports.too_slow);
    CHECK(atomic_load(&reports.too_many) == 0);
    for (int times = 0; times < 2; times++) {
        run(events, &(tg_program){.program = "/bin/sh", .arguments = hangs, .at_once = 1});
    }
    wait_for(&reports.too_many);

    /* Other subscriptions of the handle have callbacks, also after a program was bound. */
    CHECK(tg_events_subscribe(events, ours, 0, 0, NULL) == 0);
    CHECK(tg_events_call(events, on_event, &calls) == 0);
    close(ours);
    close(peer);
    wait_for(&calls);
    /* Without a callback programs are executed as well. */
    tg_program last = {.program = "/no/such/program"};
    atomic_store(&reports.not_started, 0);
    ours = connected(&peer);
    CHECK(tg_events_run(events, ours, 1u << TG_STATE, 0, &last, NULL) == 0);
    CHECK(tg_events_call(events, NULL, NULL) == 0);
    CHECK(shutdown(ours, SHUT_WR) == 0);
    wait_for(&reports.not_started);
    /* A cancelled program is not executed. */
    uint64_t id;
    CHECK(unlink(file) == 0);
    ours = connected(&peer);
    CHECK(tg_events_run(events, ours, 0, 0, &writes, &id) == 0);
    CHECK(tg_events_cancel(events, id) == 0);
    close(ours);
    atomic_store(&reports.not_started, 0);
    run(events, &last);
    wait_for(&reports.not_started);
    CHECK(access(file, F_OK) != 0);

    what_was_cancelled_is_for_nobody();

    /* If the system keeps no exit status, that is reported once for each program. */
    CHECK(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
    const char *programs[] = {"/bin/false", "/bin/false", "/bin/sh"};
    for (int number = 0; number < 3; number++) {
        run(events, &(tg_program){.program = programs[number], .arguments = fails});
    }
    for (int tries = 0; atomic_load(&reports.unknown) < 2; tries++) {
        CHECK(tries < GUARD_MS);
        CHECK(poll(NULL, 0, 1) == 0);
    }
    CHECK(tg_events_on_report(events, NULL, NULL) == 0);
    tg_events_close(events);
    puts("programs are started");
    return 0;
}
