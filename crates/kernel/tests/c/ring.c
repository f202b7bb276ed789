/* Rings of a requested size, from the daemon at the path in the argument. */
#include <string.h>

#include "check.h"

enum { SOCKETS = 20 };

/* Number of events of that many connections that were dropped. */
static uint64_t lost(tg_events *events) {
    uint64_t ids[SOCKETS], sum = 0;
    int ours[SOCKETS], peers[SOCKETS];
    CHECK(events != NULL);
    for (int i = 0; i < SOCKETS; i++) {
        ours[i] = connected(&peers[i]);
        CHECK(tg_events_subscribe(events, ours[i], 1u << TG_STATE, 0, &ids[i]) == 0);
        CHECK(shutdown(ours[i], SHUT_WR) == 0);
    }
    for (int i = 0; i < SOCKETS; i++) {
        uint64_t all, dropped;
        CHECK(tg_events_tally(events, ids[i], &all, &dropped) == 0 && all >= 1);
        sum += dropped;
        close(ours[i]);
        close(peers[i]);
    }
    tg_events_close(events);
    return sum;
}

int main(int count, char **words) {
    CHECK(count == 2);
    /* 4,096 bytes are room for 11 events. */
    CHECK(lost(tg_events_connect_with(words[1], 4096)) > 0);
    CHECK(lost(tg_events_connect(words[1])) == 0);
    CHECK(tg_events_connect_with(words[1], 5000) == NULL);
    CHECK(strstr(tg_events_error(), "power of two") != NULL);
    CHECK(tg_events_connect_with(NULL, 4096) == NULL);

    /* Programs in this process, whose events have the kernel's sequence numbers. */
    tg_events *here = tg_events_in_process();
    CHECK(here != NULL && tg_events_from_kernel(here) == 1);
    tg_event event;
    uint64_t known, variables[TG_VARIABLES];
    char text[] = "twelve bytes";
    int peer, ours = connected(&peer);
    CHECK(tg_events_subscribe(here, ours, 1u << TG_STATE, TG_ALL_VARIABLES, NULL) == 0);
    CHECK(tg_events_write(here, ours, text, sizeof text) == sizeof text);
    CHECK(read(peer, text, sizeof text) == sizeof text);
    do {
        CHECK(tg_events_probe(here, ours, &known, variables) == 0);
    } while (variables[TG_V_PACKETS_OUT] > 0);
    CHECK(shutdown(ours, SHUT_WR) == 0);
    CHECK(tg_events_next(here, &event, GUARD_MS) == 1 && event.kind == TG_STATE);
    CHECK(event.variables[TG_V_SND_UNA] != variables[TG_V_SND_UNA]);
    CHECK(tg_count_from_zero(event.known, event.variables) == 0);
    CHECK(event.variables[TG_V_SND_UNA] == variables[TG_V_SND_UNA]);
    CHECK(event.variables[TG_V_SND_NXT] == variables[TG_V_SND_NXT]);
    CHECK(event.variables[TG_V_WRITE_SEQ] == variables[TG_V_WRITE_SEQ]);
    CHECK(tg_count_from_zero(UINT64_C(1) << TG_V_SND_UNA, event.variables) == -1);
    CHECK(strstr(tg_events_error(), "bytes_acked") != NULL);
    tg_events_close(here);
    puts("rings have their sizes");
    return 0;
}
