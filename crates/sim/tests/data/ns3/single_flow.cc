// One greedy TCP flow over one bottleneck, for comparison with tidegate_sim::tcp::modern.
//
//   sender -- 10 Gb/s, 0 ms -- router -- rate, rtt/2, drop-tail, random loss -- receiver
//
// Acknowledgements come back over the same links, never lost. Written for ns-3.37. Build and use:
//   g++ -O2 -std=c++17 -o single_flow single_flow.cc -lns3-core -lns3-network -lns3-internet \
//       -lns3-applications -lns3-point-to-point -lns3-traffic-control
//   ./single_flow --cc=TcpCubic --mbps=10 --rtt=100 --queue=1 --loss=0 --run=1
//
// Prints one row: algorithm, Mb/s, RTT in ms, queue in bandwidth-delay products, loss, run, then
// goodput in Mb/s, mean number of packets waiting (over time), packets that the queue dropped, all
// from `warm` to `end`.

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <cmath>
#include <cstdio>

using namespace ns3;

namespace
{

/// Integrates the length of a queue over time.
struct Meter
{
    double area = 0;
    double since = 0;
    uint32_t packets = 0;
    uint64_t drops = 0;

    void Length(uint32_t, uint32_t now)
    {
        Close();
        packets = now;
    }

    void Drop(Ptr<const QueueDiscItem>)
    {
        ++drops;
    }

    void Close()
    {
        const double now = Simulator::Now().GetSeconds();
        area += packets * (now - since);
        since = now;
    }
};

} // namespace

int
main(int argc, char** argv)
{
    std::string cc = "TcpCubic";
    double mbps = 10, rtt = 100, queue = 1, loss = 0, warm = 10, end = 110;
    uint32_t run = 1, mss = 1448, delack = 1;
    bool hystart = true;
    CommandLine cmd;
    cmd.AddValue("cc", "TcpCubic, TcpBbr, ...", cc);
    cmd.AddValue("mbps", "rate of the bottleneck", mbps);
    cmd.AddValue("rtt", "round trip without queue, ms", rtt);
    cmd.AddValue("queue", "bandwidth-delay products", queue);
    cmd.AddValue("loss", "probability per packet", loss);
    cmd.AddValue("warm", "when measuring begins, s", warm);
    cmd.AddValue("end", "when it ends, s", end);
    cmd.AddValue("run", "seed", run);
    cmd.AddValue("delack", "segments per acknowledgement", delack);
    cmd.AddValue("hystart", "of TcpCubic", hystart);
    cmd.Parse(argc, argv);

    RngSeedManager::SetSeed(7);
    RngSeedManager::SetRun(run);
    Config::SetDefault("ns3::TcpL4Protocol::SocketType",
                       TypeIdValue(TypeId::LookupByName("ns3::" + cc)));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(mss));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(64 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(64 << 20));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(delack));
    Config::SetDefault("ns3::TcpCubic::HyStart", BooleanValue(hystart));

    NodeContainer nodes;
    nodes.Create(3);
    InternetStackHelper stack;
    stack.Install(nodes);
    PointToPointHelper access;
    access.SetDeviceAttribute("DataRate", StringValue("10Gbps"));
    access.SetChannelAttribute("Delay", StringValue("0ms"));
    access.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("100000p"));
    PointToPointHelper core;
    core.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(mbps * 1e6))));
    core.SetChannelAttribute("Delay", TimeValue(MicroSeconds(int64_t(rtt * 500))));
    core.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));
    auto left = access.Install(nodes.Get(0), nodes.Get(1));
    auto right = core.Install(nodes.Get(1), nodes.Get(2));

    const double bdp = mbps * 1e6 * rtt * 1e-3 / 8 / 1502;
    const auto limit = uint32_t(std::max(2.0, std::round(queue * bdp)));
    TrafficControlHelper control;
    control.SetRootQueueDisc("ns3::FifoQueueDisc",
                             "MaxSize",
                             QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, limit)));
    auto discs = control.Install(right.Get(0));
    TrafficControlHelper plain;
    plain.SetRootQueueDisc("ns3::FifoQueueDisc",
                           "MaxSize",
                           QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, 100000)));
    plain.Install(left);
    plain.Install(right.Get(1));

    auto errors = CreateObject<RateErrorModel>();
    errors->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
    errors->SetRate(loss);
    right.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(errors));

    Ipv4AddressHelper address;
    address.SetBase("10.0.1.0", "255.255.255.0");
    address.Assign(left);
    address.SetBase("10.0.2.0", "255.255.255.0");
    auto ends = address.Assign(right);
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 5000));
    auto receiver = sink.Install(nodes.Get(2));
    BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(ends.GetAddress(1), 5000));
    bulk.SetAttribute("SendSize", UintegerValue(mss));
    bulk.Install(nodes.Get(0)).Start(MilliSeconds(1));

    Meter meter;
    discs.Get(0)->TraceConnectWithoutContext("PacketsInQueue",
                                             MakeCallback(&Meter::Length, &meter));
    discs.Get(0)->TraceConnectWithoutContext("Drop", MakeCallback(&Meter::Drop, &meter));

    auto app = DynamicCast<PacketSink>(receiver.Get(0));
    Simulator::Stop(Seconds(warm));
    Simulator::Run();
    meter.Close();
    const double before = app->GetTotalRx(), area = meter.area;
    const uint64_t drops = meter.drops;
    Simulator::Stop(Seconds(end - warm));
    Simulator::Run();
    meter.Close();
    const double span = end - warm;
    std::printf("%s,%g,%g,%g,%g,%u,%.4f,%.2f,%lu\n",
                cc.c_str(),
                mbps,
                rtt,
                queue,
                loss,
                run,
                (app->GetTotalRx() - before) * 8e-6 / span,
                (meter.area - area) / span,
                (unsigned long)(meter.drops - drops));
    Simulator::Destroy();
    return 0;
}
