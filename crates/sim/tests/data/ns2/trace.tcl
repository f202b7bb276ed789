# Traces of one TCP flow in ns-2.35, without randomness: ns trace.tcl key=value ...
#
# net=queue: 10 Mb/s 1 ms - 1.5 Mb/s 20 ms, limit 10 - 10 Mb/s 1 ms
# net=list:  10 Mb/s 49 ms, packets 99, 199, ... are lost behind the transmitter
# net=path:  10 Mb/s 1 ms (marks) - rate, delay, limit (drops); ackdrops on the first link back
# Lists of packets are numbers from zero with commas. packets= are sent at the start, and again at
# each time of bursts=. set= and sinkset= are pairs of variable and
# value with commas, e.g. set=ecn_,1. The rows are those that the example ns2_tcp reads.

array set opt {net path proto reno delack 0 seconds 60 size 1000 window 1000 rate 10Mb delay 48ms
    limit 1000 drops "" marks "" ackdrops "" packets 0 bursts ""
    overhead 0 seed 1 set "" sinkset ""
    out /dev/stdout}
foreach arg $argv {
    if {![regexp {^([a-z]+)=(.*)$} $arg -> key value] || ![info exists opt($key)]} {
        error "what is $arg?"
    }
    set opt($key) $value
}

set ns [new Simulator]
$defaultRNG seed $opt(seed)

proc hop {from to rate delay limit} {
    global ns
    $ns duplex-link $from $to $rate $delay DropTail
    $ns queue-limit $from $to $limit
    $ns queue-limit $to $from 1000
}

proc strike {from to list mark} {
    global ns
    if {$list eq ""} return
    set model [new ErrorModel/List]
    $model unit pkt
    $model droplist $list
    if {$mark} {$model set markecn_ true}
    $ns link-lossmodel $model $from $to
    $model drop-target [new Agent/Null]
}

set source [$ns node]
set sink [$ns node]
switch -- $opt(net) {
    queue {
        set left [$ns node]
        set right [$ns node]
        hop $source $left 10Mb 1ms 1000
        hop $left $right 1.5Mb 20ms 10
        hop $right $sink 10Mb 1ms 1000
        set watched [list $left $right]
    }
    list {
        hop $source $sink 10Mb 49ms 1000
        for {set k 1} {$k < 2000} {incr k} {lappend lost [expr {100 * $k - 1}]}
        strike $source $sink $lost 0
        set watched [list $source $sink]
    }
    path {
        set middle [$ns node]
        hop $source $middle 10Mb 1ms 1000
        hop $middle $sink $opt(rate) $opt(delay) $opt(limit)
        strike $source $middle [split $opt(marks) ,] 1
        strike $middle $sink [split $opt(drops) ,] 0
        strike $sink $middle [split $opt(ackdrops) ,] 0
        set watched [list $middle $sink]
    }
}

array set senders {reno Reno newreno Newreno sack Sack1}
set tcp [new Agent/TCP/$senders($opt(proto))]
set kind Agent/TCPSink
if {$opt(proto) eq "sack"} {append kind /Sack1}
if {$opt(delack)} {append kind /DelAck}
set receiver [new $kind]
# The size on the wire is packetSize_.
$tcp set useHeaders_ false
$tcp set packetSize_ $opt(size)
$tcp set window_ $opt(window)
$tcp set overhead_ $opt(overhead)
foreach {name value} [split $opt(set) ,] {$tcp set $name $value}
foreach {name value} [split $opt(sinkset) ,] {$receiver set $name $value}
$tcp set fid_ 1
$ns attach-agent $source $tcp
$ns attach-agent $sink $receiver
$ns connect $tcp $receiver

set rows [open [list | awk {
    BEGIN {OFS = ","; print "event,time_s,type,size_B,seq"}
    $1 ~ /[+dr]/ && $8 == 1 {print $1, $2, $5, $6, $11}
} > $opt(out)] w]
$ns trace-queue [lindex $watched 0] [lindex $watched 1] $rows

set ftp [new Application/FTP]
$ftp attach-agent $tcp
if {$opt(packets) > 0} {
    foreach time [concat 0.0 [split $opt(bursts) ,]] {
        $ns at $time "$ftp send [expr {$opt(packets) * $opt(size)}]"
    }
} else {
    $ns at 0.0 "$ftp start"
}
$ns at $opt(seconds) {close $rows; exit 0}
$ns run
