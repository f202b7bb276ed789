# The scenarios of scenarios/speed for ns-2 2.35, without any monitor unless asked for: how long
# ns-2 takes for what the simulator does there. Arguments are key=value:
#
#   flows      how many
#   kind       tfrc or sack
#   rate       of the shared link, in bit/s
#   queue      red (25, 125 and 300 packets) or the number of packets that drop-tail holds
#   seconds    how long
#   count      1: say how many packets crossed a link; costs ns-2 time, so it is 0 while measuring
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
