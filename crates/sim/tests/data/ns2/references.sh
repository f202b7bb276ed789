#!/bin/sh
# Regenerates the references in this folder. Requires ns-2.35 (`ns`) and the example ns2_tcp.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
trace=$(mktemp)
trap 'rm -f "$trace"' EXIT

# NAME SETUP OPTIONS...: the same network and sender in the words of the example and of trace.tcl.
reference() {
    name=$1 setup=$2
    shift 2
    ns "$here/trace.tcl" out="$trace" "$@"
    cargo run --quiet --release -p tidegate-sim --example ns2_tcp -- \
        reduce "$setup" "$trace" > "$here/$name.txt"
}

for sender in reno newreno sack; do
    reference "queue_$sender" "queue,$sender" net=queue proto=$sender
    reference "list_$sender" "list,$sender" net=list proto=$sender seconds=120
done

# Sizes and delays are odd so that no two events coincide, in which case ns-2 lets rounding
# errors of its clock decide.
marks=30,31,90,180,181,182,300,410,411,500,620,621,700,820
reference path_sack_ecn \
    "path,sack,size=1003,kbps=2000,nanos=41234567,ecn=1,marks=$(echo $marks | tr , /),drops=120/121/333/560/811/812/813" \
    proto=sack size=1003 rate=2Mb delay=41.234567ms set=ecn_,1 marks=$marks \
    drops=120,121,333,560,811,812,813
marks=12,13,14,15,16,40,41,42,43,44,60,61,62,63,64,65,66,67,68
reference path_reno_ecn \
    "path,reno,size=577,nanos=61234567,window=8,ecn=1,delack=1,marks=$(echo $marks | tr , /),drops=30/75/90" \
    proto=reno size=577 rate=10Mb delay=61.234567ms window=8 set=ecn_,1 delack=1 marks=$marks \
    drops=30,75,90
drops=25,80,81,82,83,84,150,151,210,260,261,262,263,264,265,266,267,268,269,270,400,500,501,650,800
reference path_reno_delack \
    "path,reno,size=997,kbps=3000,nanos=31234567,limit=20,delack=1,drops=$(echo $drops | tr , /)" \
    proto=reno size=997 rate=3Mb delay=31.234567ms limit=20 delack=1 drops=$drops
reference path_newreno_bursts \
    "path,newreno,size=1003,kbps=2000,nanos=51234567,limit=50,drops=$(echo $drops | tr , /),ackdrops=40/41/42/43/90/91/160/161/162/163/164/165/230" \
    proto=newreno size=1003 rate=2Mb delay=51.234567ms limit=50 drops=$drops \
    ackdrops=40,41,42,43,90,91,160,161,162,163,164,165,230
reference path_newreno_variants \
    "path,newreno,size=1003,nanos=21234567,window=40,impatient=0,deflate=0,exitfix=1,changes=1,iw=4,drops=$(echo $drops | tr , /)" \
    proto=newreno size=1003 delay=21.234567ms window=40 drops=$drops \
    set=newreno_changes1_,0,partial_window_deflation_,0,exit_recovery_fix_,1,newreno_changes_,1,windowInit_,4
reference path_sack_bursts \
    "path,sack,size=1399,kbps=5000,nanos=71234567,limit=30,delack=1,drops=$(echo $drops | tr , /),ackdrops=50/51/52/120/121/200" \
    proto=sack size=1399 rate=5Mb delay=71.234567ms limit=30 delack=1 drops=$drops \
    ackdrops=50,51,52,120,121,200
reference path_reno_variants \
    "path,reno,size=1003,nanos=31234567,window=30,ts=1,minrto=20,bugfix=0,limited=0,control=1,burst=3,drops=$(echo $drops | tr , /)" \
    proto=reno size=1003 delay=31.234567ms window=30 drops=$drops \
    set=timestamps_,true,minrto_,0.02,bugFix_,false,singledup_,0,control_increase_,1,maxburst_,3
reference path_sack_short \
    "path,sack,size=1003,nanos=31234567,packets=300,rfc3390=1,restart=0,drops=0/1/4/9/10/11/12/13/50/90/91/92/180/240/295/299" \
    proto=sack size=1003 delay=31.234567ms packets=300 \
    drops=0,1,4,9,10,11,12,13,50,90,91,92,180,240,295,299 \
    set=windowInitOption_,2,slow_start_restart_,false
for restart in 0 1; do
    reference "path_sack_bursts_restart$restart" \
        "path,sack,size=1003,kbps=1900,nanos=31234567,limit=25,restart=$restart,control=$restart,bursts=40/911/2003/2077/4501/9007" \
        proto=sack size=1003 rate=1.9Mb delay=31.234567ms limit=25 packets=40 seconds=15 \
        bursts=0.911,2.003,2.077,4.501,9.007 set=slow_start_restart_,$restart,control_increase_,$restart
    reference "path_reno_bursts_restart$restart" \
        "path,reno,size=1003,kbps=1900,nanos=31234567,limit=25,restart=$restart,delack=1,bursts=41/911/2003/2077/4501/9007" \
        proto=reno size=1003 rate=1.9Mb delay=31.234567ms limit=25 packets=41 seconds=15 delack=1 \
        bursts=0.911,2.003,2.077,4.501,9.007 set=slow_start_restart_,$restart
done
