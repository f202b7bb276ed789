-- Wireshark dissector of the header of the Coordination Protocol (CP) in UDP payloads.
--
-- Install it in the folder of personal plugins (Help > About Wireshark > Folders), or load it for
-- one capture, with the UDP port of the application:
--
--   tshark -X lua_script:cp.lua -d udp.port==5008,cp -r capture.pcap -V
--
-- docs/coordination-protocol.md specifies the format.

local cp = Proto("cp", "Coordination Protocol")

local LENGTH = 20
local VERSION = 1
local TICK = 16e-6 -- seconds
local ROLES = { [0] = "origin", [1] = "probe", [2] = "report" }
local ORIGIN, PROBE, REPORT = 0, 1, 2

local f = cp.fields
f.version = ProtoField.uint8("cp.version", "Version", base.DEC, nil, 0xf0)
f.role = ProtoField.uint8("cp.role", "Role", base.DEC, ROLES, 0x0c)
f.has_echo = ProtoField.bool("cp.has_echo", "Echo valid", 8, nil, 0x02)
f.peer_lost = ProtoField.bool("cp.peer_lost", "Peer lost", 8, nil, 0x02)
f.stop = ProtoField.bool("cp.stop", "Stop", 8, nil, 0x01)
f.shares = ProtoField.uint8("cp.shares", "Flowshares")
f.application = ProtoField.uint16("cp.application", "Application")
f.flow = ProtoField.uint16("cp.flow", "Flow")
f.seq = ProtoField.uint24("cp.seq", "Sequence number")
f.stamp = ProtoField.double("cp.stamp", "Timestamp (s)")
f.echo = ProtoField.double("cp.echo", "Echo (s)")
f.echo_delay = ProtoField.double("cp.echo_delay", "Echo delay (s)")
f.rtt = ProtoField.double("cp.rtt", "Round-trip time (s)")
f.deviation = ProtoField.double("cp.deviation", "Deviation of the round-trip time (s)")
f.loss = ProtoField.double("cp.loss", "Loss rate")
f.available = ProtoField.uint64("cp.available", "Available bandwidth of a flowshare (b/s)")
f.used = ProtoField.uint64("cp.used", "Used bandwidth (b/s)")
f.packet_size = ProtoField.uint16("cp.packet_size", "Mean packet size (bytes)")
f.flows = ProtoField.uint8("cp.flows", "Flows")

cp.prefs.ports = Pref.range("UDP ports", "", "UDP ports of applications, such as 5008,6000-6010", 65535)

-- An 11-bit mantissa and a 5-bit exponent of 2. The exponent may exceed the range of 32-bit shifts.
local function rate(range)
    local code = range:uint()
    local mantissa = UInt64(bit.band(code, 0x7ff))
    return mantissa:lshift(bit.rshift(code, 11))
end

-- 16 steps per factor of 2; 255 is a loss rate of 1.
local function loss(range)
    local code = range:uint()
    if code == 0 then
        return 0
    end
    return 2 ^ ((code - 255) / 16)
end

local function seconds(range)
    return range:uint() * TICK
end

local function probe(buffer, tree)
    local has_echo = bit.band(buffer(0, 1):uint(), 0x02) ~= 0
    tree:add(f.seq, buffer(6, 3))
    tree:add(f.stamp, buffer(9, 3), seconds(buffer(9, 3)))
    if has_echo then
        tree:add(f.echo, buffer(12, 3), seconds(buffer(12, 3)))
        tree:add(f.echo_delay, buffer(15, 2), seconds(buffer(15, 2)))
    end
    tree:add(f.loss, buffer(17, 1), loss(buffer(17, 1)))
    tree:add(f.available, buffer(18, 2), rate(buffer(18, 2)))
end

local function report(buffer, tree)
    tree:add(f.rtt, buffer(6, 3), seconds(buffer(6, 3)))
    tree:add(f.deviation, buffer(9, 2), seconds(buffer(9, 2)))
    tree:add(f.loss, buffer(11, 1), loss(buffer(11, 1)))
    tree:add(f.available, buffer(12, 2), rate(buffer(12, 2)))
    tree:add(f.used, buffer(14, 2), rate(buffer(14, 2)))
    tree:add(f.packet_size, buffer(16, 2))
    tree:add(f.flows, buffer(18, 1))
end

-- Returns the number of dissected bytes, zero if the payload has no valid header.
function cp.dissector(buffer, pinfo, root)
    if buffer:len() < LENGTH then
        return 0
    end
    local first = buffer(0, 1):uint()
    local role = bit.band(bit.rshift(first, 2), 3)
    local shares = buffer(1, 1):uint()
    if bit.rshift(first, 4) ~= VERSION or not ROLES[role] or shares < 1 or shares > 64 then
        return 0
    end
    pinfo.cols.protocol = "CP"
    pinfo.cols.info = string.format("%s, application %d, flow %d", ROLES[role],
        buffer(2, 2):uint(), buffer(4, 2):uint())
    local tree = root:add(cp, buffer(0, LENGTH))
    tree:add(f.version, buffer(0, 1))
    tree:add(f.role, buffer(0, 1))
    if role == PROBE then
        tree:add(f.has_echo, buffer(0, 1))
    elseif role == REPORT then
        tree:add(f.peer_lost, buffer(0, 1))
    end
    if role ~= ORIGIN then
        tree:add(f.stop, buffer(0, 1))
    end
    tree:add(f.shares, buffer(1, 1))
    tree:add(f.application, buffer(2, 2))
    tree:add(f.flow, buffer(4, 2))
    if role == PROBE then
        probe(buffer, tree)
    elseif role == REPORT then
        report(buffer, tree)
    end
    if buffer:len() > LENGTH then
        Dissector.get("data"):call(buffer(LENGTH):tvb(), pinfo, root)
    end
    return buffer:len()
end

local udp = DissectorTable.get("udp.port")
local registered = ""

function cp.prefs_changed()
    if registered ~= cp.prefs.ports then
        if registered ~= "" then
            udp:remove(registered, cp)
        end
        registered = cp.prefs.ports
        if registered ~= "" then
            udp:add(registered, cp)
        end
    end
end

udp:add_for_decode_as(cp)
