#!/bin/sh
# Reduces the output of the scripts in tcl/ to the reference files in this folder; see README.md.
# usage: reduce.sh FOLDER
set -eu
cd "$1"
here=$(cd "$OLDPWD" && cd "$(dirname "$0")" && pwd)

# SET KEYS NAMES COLUMNS: mean, standard deviation and number of some columns over all rows that
# agree in the columns KEYS, in the order in which they first appear. `nan` means never: 70 s.
means() {
    awk -F, -v set="$1" -v keys="$2" -v names="$3" -v columns="$4" '
        BEGIN { k = split(keys, key, " "); m = split(names, name, " "); split(columns, column, " ") }
        $1 == "label" || $1 == "red" || $1 == "proto" { next }
        {
            point = $key[1]
            for (i = 2; i <= k; i++) point = point " " $key[i]
            if (!(point in n)) order[++points] = point
            n[point]++
            for (i = 1; i <= m; i++) {
                x = $column[i] == "nan" ? 70 : $column[i]
                sum[point, i] += x
                squares[point, i] += x * x
            }
        }
        END {
            for (p = 1; p <= points; p++) for (i = 1; i <= m; i++) {
                point = order[p]; c = n[point]; mean = sum[point, i] / c
                var = c > 1 ? (squares[point, i] - c * mean * mean) / (c - 1) : 0
                printf "%s,%s,%s,%.6g,%.3g,%d\n", set, point, name[i], mean, (var > 0 ? sqrt(var) : 0), c
            }
        }'
}

# One row of a single run: SET POINT WHAT VALUE.
once() { echo "$1,$2,$3,$4,0,1"; }

{
    echo "set,point,what,mean,sd,n"
    for group in A B; do
        name=$(echo $group | tr AB ab)
        awk -F, -v g=$group '$5 == g' s002_groups.csv |
            means shared "1 3 4" "$name.pps $name.loss_events $name.loss" "7 13 12"
        # One flow has no spread.
        awk -F, -v g=$group '$5 == g && !($1 == "one_vs_n" && g == "A")' s002_groups.csv |
            means shared "1 3 4" "$name.sd_pps $name.min_pps $name.max_pps" "8 9 10"
    done
    awk -F, '$5 == "A"' s002_groups.csv | means shared "1 3 4" queue.packets 14
    means start 1 "tcp.pps tfrc.pps tcp.loss tfrc.loss" "9 13 14 15" < s003_summary.csv
    means start 1 "tcp.sent_pps tcp.min_pps tcp.max_pps" "8 11 12" < s003_summary.csv
    # Times count from the flow's start, rates in packets.
    awk -F, -v OFS=, '{ $5 -= $4; $6 /= 1000; $7 -= $4; print }' s003_summary.csv |
        means start 1 "tfrc.slow_start_s tfrc.peak_pps tfrc.peak_s" "5 6 7"
    means start 1 "tfrc.settled50_s tfrc.settled30_s" "5 6" < s003_settle.csv
    awk -F, -v OFS=, '{ $11 /= 1000; $12 /= 1000; print }' s003_settle.csv |
        means start 1 "tfrc.cov_100ms tcp.cov_100ms tfrc.cov_1s tcp.cov_1s tfrc.sent_pps tcp.one_sent_pps" \
            "7 8 9 10 11 12"
    zcat s003_bins_0.1s.csv.gz | awk -F, -v OFS=, '
        $3 >= 13.95 {
            run = $1 OFS $2
            if (!(run in n)) order[++runs] = run
            n[run]++; sum[run] += $12
        }
        END { for (r = 1; r <= runs; r++) print order[r], sum[order[r]] / n[order[r]] }' |
        means start 1 queue.packets 3
    awk -F, -v OFS=, '{ $13 = 1 - $13; print }' s004_throughput.csv |
        means satellite "1 3 5 6 7 8" \
            "flow.pps flow.sent_pps flow.min_pps flow.max_pps flow.unfair flow.queue_loss" "10 9 11 12 13 14"
    awk -F, 'NR > 1 { print "blackout_D" $2 " " $1 " 0.001 0.55 50 " $2 "," $0 }' s004_blackout_recovery.csv |
        means satellite 1 \
            "all.half_back_s all.most_back_s all.first_back_s all.pps_100s all.pps_50s_after all.sent_pps_during all.pps_before" \
            "6 7 8 9 10 11 5" |
        grep -v "_D[01] .*during" | grep -v "_D[1-9].*before"
    grep ,tfrc, s005_raw.csv |
        means response "1 3 4 5 7 8" \
            "flow.sent_pps flow.reported_p flow.pps flow.rate_pps flow.reports flow.reported_1_p" "9 13 10 11 12 14"
    grep -v ,tfrc, s005_raw.csv | means response "1 3 4 5 7 8" "flow.sent_pps flow.pps" "9 10"
    means red "1 2" "stream.loss queue.packets" "4 6" < red_openloop.csv
    # Counts of single runs, from the page that came with the records.
    once speed "tfrc 48" sent 345900
    once speed "tfrc 48" hops 1168523
    once speed "newreno 48" sent 345302
    once speed "newreno 48" hops 2020202
    once speed "sack 48" sent 345146
    once speed "sack 48" hops 2020514
    once speed "newreno 1000" sent 2425199
    once speed "newreno 1000" hops 13852332
    once speed "sack 1000" sent 2454945
    once speed "sack 1000 6" sent 686566
    once speed "sack 1000 6" hops 3679711
    # ns-3 says what passed the bottleneck and what its queue dropped.
    once speed "ns3-newreno 48" hops 2034364
    once speed "ns3-newreno 48" passed 334566
    once speed "ns3-newreno 48" dropped 27551
    once speed "ns3-sack 48" hops 2020052
    once speed "ns3-sack 48" passed 335338
    once speed "ns3-sack 48" dropped 8654
    once speed "ns3-sack 1000 6" passed 639063
    once speed "ns3-sack 1000 6" dropped 60624
    # Where nothing is random: what came to the queue or the lossy link, and what was lost there.
    for kind in queue list100; do
        for proto in reno newreno sack rap tfrc; do
            set=$([ $kind = queue ] && echo queue || echo every)
            zcat "micro/${kind}_$proto.csv.gz" | awk -F, -v t="$set,$proto" -v kind=$kind '
                $1 == "+" { sent++ }
                $1 == "d" { lost++ }
                END {
                    if (kind == "list100") lost = int(sent / 100)
                    if (kind == "list100") print t ",sent," sent ",0,1"
                    print t ",dropped," lost ",0,1"
                }'
        done
    done
} > "$here/means.csv"

# When packets get to the far end: the first, every 200th, and the last.
{
    echo "set,trace,packet,time_us"
    for kind in queue list100; do
        for proto in reno newreno sack rap tfrc; do
            set=$([ $kind = queue ] && echo queue || echo every)
            zcat "micro/${kind}_$proto.csv.gz" | awk -F, -v t="$set,$proto" '
                $1 == "r" { at = sprintf("%.0f", $2 * 1e6); if (n % 200 == 0) print t "," n + 0 "," at; n++ }
                END { if ((n - 1) % 200) print t "," n - 1 "," at }'
        done
    done
} > "$here/packets.csv"
