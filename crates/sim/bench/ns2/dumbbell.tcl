# The scenarios of scenarios/speed for ns-2 2.35, without any monitor unless asked for: how long
# ns-2 takes for what the simulator does there. Arguments are key=value:
#
#   flows      how many
#   kind       tfrc or sack
#   rate       of the shared link, in bit/s
#   queue      red (25, 125 and 300 packets) or the number of packets that drop-tail holds
#   seconds    how long
#   count      1: a monitor on each link, read at the end to say how many packets crossed one;
#              2: read on the way too, for what our metrics have of every flow (bytes and packets
#              that it sent and received in bins of 200 ms) and of the shared link (what waits, was
#              taken and was dropped, every 20 ms). Delays are left out: ns-2 has them in traces only
#   seed       of everything random

array set given {flows 48 kind sack rate 15e6 queue red seconds 180 count 0 seed 1}
foreach argument $argv {
    if {![regexp {^(\w+)=(.+)$} $argument -> key value] || ![info exists given($key)]} {
        puts stderr "dumbbell.tcl: what is `$argument`? Known: [lsort [array names given]]"
        exit 1
    }
    set given($key) $value
}

set ns [new Simulator]
# Routes by hand: what ns-2 computes by itself grows with the square of the nodes.
$ns rtproto Manual
$defaultRNG seed $given(seed)
set dice [new RNG]
$dice seed [expr {$given(seed) + 1000}]

# Queues of access links are long enough not to drop.
Queue set limit_ 2000
set links {}
proc connect {from to rate delay kind} {
    global ns links
    $ns duplex-link $from $to $rate $delay $kind
    lappend links [list $from $to] [list $to $from]
}
proc route {at args} {
    eval [list [$at get-module "Manual"] add-route-to-adj-node] $args
}

set left [$ns node]
set right [$ns node]
connect $left $right $given(rate) 50ms [expr {$given(queue) eq "red" ? "RED" : "DropTail"}]
foreach {from to} [list $left $right $right $left] {
    if {$given(queue) ne "red"} {
        $ns queue-limit $from $to $given(queue)
        continue
    }
    $ns queue-limit $from $to 300
    set red [[$ns link $from $to] queue]
    foreach {parameter value} {
        bytes_ false queue_in_bytes_ false thresh_ 25 maxthresh_ 125 q_weight_ 0.002
        linterm_ 10 gentle_ true wait_ true mean_pktsize_ 1000
    } {
        $red set $parameter $value
    }
}

for {set i 0} {$i < $given(flows)} {incr i} {
    set near [$ns node]
    set far [$ns node]
    connect $near $left 100Mb 1ms DropTail
    connect $right $far 100Mb [expr {[$dice uniform 1 20]}]ms DropTail
    route $near -default $left
    route $far -default $right
    route $left $near
    route $right $far
    if {$given(kind) eq "tfrc"} {
        set source [new Agent/TFRC]
        set sink [new Agent/TFRCSink]
        $sink set packetSize_ 40
        set start $source
    } else {
        set source [new Agent/TCP/Sack1]
        set sink [new Agent/TCPSink/Sack1]
        $source set window_ 10000
        set start [new Application/FTP]
        $start attach-agent $source
    }
    # So that packets are of 1000 bytes in all.
    $source set packetSize_ 1000
    $source set useHeaders_ false
    $ns attach-agent $near $source
    $ns attach-agent $far $sink
    $ns connect $source $sink
    $ns at [$dice uniform 0 5] "$start start"
}
route $left -default $right
route $right -default $left

set monitors {}
if {$given(count)} {
    foreach link $links {
        lappend monitors [eval [list $ns monitor-queue] $link [list ""]]
    }
}
# Of each flow the links are: there and back again of its access, and of its exit.
proc read_flows {} {
    global ns monitors bins
    foreach {access - exit -} [lrange $monitors 2 end] {
        lappend bins [$access set parrivals_] [$access set barrivals_] \
            [$exit set pdepartures_] [$exit set bdepartures_]
    }
    $ns at [expr {[$ns now] + 0.2}] read_flows
}
proc read_shared {} {
    global ns monitors samples
    foreach monitor [lrange $monitors 0 1] {
        lappend samples [$monitor set pkts_] [$monitor set size_] [$monitor set parrivals_] \
            [$monitor set pdrops_] [$monitor set bdepartures_]
    }
    $ns at [expr {[$ns now] + 0.02}] read_shared
}
if {$given(count) == 2} {
    $ns at 0 read_flows
    $ns at 0 read_shared
}
proc finish {} {
    global monitors
    set hops 0.0
    foreach monitor $monitors {
        set hops [expr {$hops + [$monitor set pdepartures_]}]
    }
    puts [format "%.0f packet-hops" $hops]
    exit 0
}
$ns at $given(seconds) finish
$ns run
