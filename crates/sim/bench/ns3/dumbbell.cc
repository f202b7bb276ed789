// The TCP scenarios of scenarios/speed for ns-3.37, without traces: how long ns-3 takes for what the
// simulator does there. TFRC it has not. Arguments are --key=value:
//
//   flows      how many
//   rate       of the shared link, in bit/s
//   queue      red (25, 125 and 300 packets) or the number of packets that drop-tail holds
//   seconds    how long
//   meter      true: say how many packets crossed a link, and keep a FlowMonitor of every flow
#include <algorithm>
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/flow-monitor-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

static uint64_t hops = 0;

static void
Received(Ptr<const Packet>)
{
    hops++;
}

static Ipv4InterfaceContainer
Join(Ptr<Node> from, Ptr<Node> to, PointToPointHelper& link, Ipv4AddressHelper& addresses)
{
    Ipv4InterfaceContainer ends = addresses.Assign(link.Install(from, to));
    addresses.NewNetwork();
    return ends;
}

int
main(int argc, char** argv)
{
    uint32_t flows = 48;
    double rate = 15e6;
    double seconds = 20;
    std::string queue = "red";
    bool meter = false;
    CommandLine words;
    words.AddValue("flows", "how many", flows);
    words.AddValue("rate", "of the shared link, in bit/s", rate);
    words.AddValue("queue", "red, or packets of drop-tail", queue);
    words.AddValue("seconds", "how long", seconds);
    words.AddValue("meter", "count packets and monitor flows", meter);
    words.Parse(argc, argv);

    // Packets of 1000 bytes with 40 of headers and 12 of time stamps; 2 more are those of the link.
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(948));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(10000000));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(10000000));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::TcpNewReno"));
    // The queues of devices: short where RED is in front of them, long enough at access links.
    Config::SetDefault("ns3::RedQueueDisc::MinTh", DoubleValue(25));
    Config::SetDefault("ns3::RedQueueDisc::MaxTh", DoubleValue(125));
    Config::SetDefault("ns3::RedQueueDisc::MaxSize", StringValue("300p"));
    Config::SetDefault("ns3::RedQueueDisc::MeanPktSize", UintegerValue(1000));

    NodeContainer shared(2);
    NodeContainer near(flows);
    NodeContainer far(flows);
    InternetStackHelper stack;
    Ipv4StaticRoutingHelper manual;
    stack.SetRoutingHelper(manual);
    stack.SetIpv6StackInstall(false);
    stack.InstallAll();
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");

    PointToPointHelper bottleneck;
    bottleneck.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(rate))));
    bottleneck.SetChannelAttribute("Delay", StringValue("50ms"));
    bottleneck.SetQueue("ns3::DropTailQueue",
                        "MaxSize",
                        StringValue(queue == "red" ? "1p" : queue + "p"));
    NetDeviceContainer middle = bottleneck.Install(shared);
    TrafficControlHelper control;
    if (queue == "red")
    {
        control.SetRootQueueDisc("ns3::RedQueueDisc",
                                 "LinkBandwidth",
                                 DataRateValue(DataRate(uint64_t(rate))),
                                 "LinkDelay",
                                 StringValue("50ms"));
        control.Install(middle);
    }
    Ipv4InterfaceContainer inner = addresses.Assign(middle);
    if (queue != "red")
    {
        control.Uninstall(middle);
    }
    addresses.NewNetwork();

    PointToPointHelper access;
    access.SetDeviceAttribute("DataRate", StringValue("100Mb/s"));
    access.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("2000p"));
    Ptr<UniformRandomVariable> dice = CreateObject<UniformRandomVariable>();
    ApplicationContainer sources;
    for (uint32_t i = 0; i < flows; i++)
    {
        access.SetChannelAttribute("Delay", StringValue("1ms"));
        Ipv4InterfaceContainer left = Join(near.Get(i), shared.Get(0), access, addresses);
        access.SetChannelAttribute("Delay", TimeValue(Seconds(dice->GetValue(0.001, 0.020))));
        Ipv4InterfaceContainer right = Join(shared.Get(1), far.Get(i), access, addresses);
        Ptr<Ipv4> leftmost = near.Get(i)->GetObject<Ipv4>();
        Ptr<Ipv4> rightmost = far.Get(i)->GetObject<Ipv4>();
        manual.GetStaticRouting(leftmost)->SetDefaultRoute(left.GetAddress(1), 1);
        manual.GetStaticRouting(rightmost)->SetDefaultRoute(right.GetAddress(0), 1);
        BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(right.GetAddress(1), 9));
        ApplicationContainer app = source.Install(near.Get(i));
        app.Start(Seconds(dice->GetValue(0, std::min(5.0, seconds))));
        PacketSinkHelper sink("ns3::TcpSocketFactory",
                              InetSocketAddress(Ipv4Address::GetAny(), 9));
        sink.Install(far.Get(i));
    }
    Ptr<Ipv4> leftmost = shared.Get(0)->GetObject<Ipv4>();
    Ptr<Ipv4> rightmost = shared.Get(1)->GetObject<Ipv4>();
    manual.GetStaticRouting(leftmost)->SetDefaultRoute(inner.GetAddress(1), 1);
    manual.GetStaticRouting(rightmost)->SetDefaultRoute(inner.GetAddress(0), 1);

    FlowMonitorHelper monitors;
    if (meter)
    {
        Config::ConnectWithoutContext("/NodeList/*/DeviceList/*/$ns3::PointToPointNetDevice/MacRx",
                                      MakeCallback(&Received));
        monitors.InstallAll();
    }
    Simulator::Stop(Seconds(seconds));
    Simulator::Run();
    std::cout << hops << " packet-hops" << std::endl;
    Simulator::Destroy();
    return 0;
}
