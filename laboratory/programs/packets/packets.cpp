// Simulates every packet of flows on lossless links: queues, priority flow control (PFC), ECN marks and DCQCN.
//
// It reads a case from standard input (laboratory/programs/packets/cases.py writes it) and prints, for each flow, the
// picosecond at which its last byte arrived. Written for this comparison; the parameters are those of the public
// simulation of the HPCC paper (Li et al., SIGCOMM 2019: run.py's "dcqcn"), scaled with the rate of a link as there.
//
//   g++ -O2 -std=c++17 -o packets packets.cpp
//   payload header buffer dcqcn seed         bytes, bytes, bytes of a switch, 0 or 1, of the draws of marks
//   links                                    then from, to, Gb/s, latency in ns, a line each; a link's reverse is
//   beside it flows                                    then bytes, start in ns, number of links, the links
#include <cassert>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <queue>
#include <random>
#include <vector>

using Time = int64_t; // picoseconds

constexpr Time MICROSECOND = 1'000'000;
constexpr Time ALPHA_EVERY = MICROSECOND, DECREASE_EVERY = 4 * MICROSECOND, INCREASE_EVERY = 300 * MICROSECOND;
constexpr double ALPHA_GAIN = 1.0 / 256;
constexpr int64_t CONTROL_NBYTES = 84;  // an acknowledgement on the wire
constexpr int64_t RESUME_NBYTES = 3000; // so far below the threshold a paused link is resumed

struct Packet {
    int flow, hop, size; // `hop` counts the links already passed
    bool last, acknowledges, marked;
    int64_t payload;
};

struct Link {
    int from, to, reverse;
    double ps_per_byte, gbps;
    Time latency;
    std::deque<Packet> control, data;
    int64_t queued = 0; // bytes of data that wait or are being sent
    bool busy = false, paused = false;
    int64_t held = 0; // bytes of data in the switch at the far end that came over this link
    bool told_to_pause = false;
};

struct Flow {
    int64_t nbytes, sent = 0;
    Time start, next = 0, done = -1;
    std::vector<int> path;
    // DCQCN: the rate now, the rate to return to (Gb/s), the estimate of congestion
    double rate, target, alpha = 1.0;
    bool congested = false, seen_for_alpha = false, seen_for_decrease = false, first_cut = true;
    int stage = 0;
    uint64_t timers = 0; // events of older timers are void
};

enum Kind { ARRIVE, SENT, WAKE, PAUSE, RESUME, ALPHA, DECREASE, INCREASE };

struct Event {
    Time at;
    uint64_t order;
    Kind kind;
    int where;
    uint64_t version;
    Packet packet;
    bool operator<(const Event &other) const { return at != other.at ? at > other.at : order > other.order; }
};

static std::vector<Link> links;
static std::vector<Flow> flows;
static std::vector<int64_t> used;             // bytes of data in each node
static std::vector<std::vector<int>> sending; // flows of each host's first link
static std::vector<size_t> turn;
static std::priority_queue<Event> events;
static std::mt19937_64 draws;
static uint64_t orders = 0;
static int64_t payload, header, buffer_nbytes, pauses = 0;
static int dcqcn;
static Time now = 0;

static void later(Time at, Kind kind, int where, uint64_t version = 0, Packet packet = {}) {
    events.push({at, orders++, kind, where, version, packet});
}

static bool from_host(int link) { return !sending[link].empty(); }

static Time duration(const Link &link, int64_t nbytes) { return Time(nbytes * link.ps_per_byte + 0.5); }

static void begin(int number, const Packet &packet) {
    Link &link = links[number];
    link.busy = true;
    Time end = now + duration(link, packet.size);
    later(end, SENT, number, 0, packet);
    later(end + link.latency, ARRIVE, number, 0, packet);
}

// A host sends the packets of its flows by turns, each at the rate that congestion control allows.
static void host_sends(int number) {
    auto &mine = sending[number];
    Time next = INT64_MAX;
    for (size_t i = 0; i < mine.size(); i++) {
        size_t place = (turn[number] + i) % mine.size();
        Flow &flow = flows[mine[place]];
        if (flow.sent >= flow.nbytes || flow.start > now) continue;
        if (flow.next > now) {
            next = std::min(next, flow.next);
            continue;
        }
        int64_t bytes = std::min(payload, flow.nbytes - flow.sent);
        flow.sent += bytes;
        Packet packet{mine[place], 0, int(bytes + header), flow.sent == flow.nbytes, false, false, bytes};
        flow.next = now + Time(packet.size * 8000.0 / flow.rate + 0.5);
        turn[number] = place + 1;
        begin(number, packet);
        return;
    }
    if (next != INT64_MAX) later(next, WAKE, number);
}

static void send(int number) {
    Link &link = links[number];
    if (link.busy) return;
    if (!link.control.empty()) {
        Packet packet = link.control.front();
        link.control.pop_front();
        begin(number, packet);
    } else if (!link.paused) {
        if (from_host(number)) {
            host_sends(number);
        } else if (!link.data.empty()) {
            Packet packet = link.data.front();
            link.data.pop_front();
            begin(number, packet);
        }
    }
}

static int64_t threshold(int node) { return std::max<int64_t>(0, buffer_nbytes - used[node]) >> 3; }

static void check_pause(int number) {
    Link &link = links[number];
    int64_t most = threshold(link.to);
    if (!link.told_to_pause && link.held > most) {
        link.told_to_pause = true;
        pauses++;
        later(now + links[link.reverse].latency, PAUSE, number);
    } else if (link.told_to_pause && link.held + RESUME_NBYTES <= most) {
        link.told_to_pause = false;
        later(now + links[link.reverse].latency, RESUME, number);
    }
}

static void forward(int came_over, Packet packet) {
    const Flow &flow = flows[packet.flow];
    int number =
        packet.acknowledges ? links[flow.path[flow.path.size() - 1 - packet.hop]].reverse : flow.path[packet.hop];
    Link &link = links[number];
    if (packet.acknowledges) {
        link.control.push_back(packet);
    } else {
        double least = 4000.0 * link.gbps, most = 16000.0 * link.gbps; // Kmin and Kmax: 100 and 400 KB at 25 Gb/s
        double excess = (link.queued - least) / (most - least);
        if (excess > 0) packet.marked |= excess > 1 || std::uniform_real_distribution<>(0, 1)(draws) < 0.2 * excess;
        link.queued += packet.size;
        link.data.push_back(packet);
        links[came_over].held += packet.size;
        used[link.from] += packet.size;
        check_pause(came_over);
    }
    send(number);
}

static void cut(Flow &flow, int number) {
    if (flow.first_cut || flow.stage > 0) flow.target = flow.rate;
    flow.first_cut = false;
    flow.rate = std::max(1.0, flow.rate * (1 - flow.alpha / 2));
    flow.stage = 0;
    later(now + INCREASE_EVERY, INCREASE, number, ++flow.timers);
}

static void acknowledged(int number, bool marked) {
    Flow &flow = flows[number];
    if (!dcqcn || !marked || flow.sent >= flow.nbytes) return;
    flow.seen_for_alpha = flow.seen_for_decrease = true;
    if (!flow.congested) {
        flow.congested = true;
        flow.alpha = 1.0;
        later(now + ALPHA_EVERY, ALPHA, number);
        later(now + DECREASE_EVERY, DECREASE, number);
        flow.seen_for_decrease = false;
        cut(flow, number);
    }
}

static void increase(int number, uint64_t version) {
    Flow &flow = flows[number];
    if (version != flow.timers || flow.sent >= flow.nbytes) return;
    double line = links[flow.path[0]].gbps;
    flow.stage++;
    if (flow.stage > 1) // the first one only returns halfway to the target
        flow.target = std::min(line, flow.target + (flow.stage == 2 ? 0.2e-3 : 2e-3) * line);
    flow.rate = std::min(line, (flow.rate + flow.target) / 2);
    later(now + INCREASE_EVERY, INCREASE, number, flow.timers);
}

static void happen(const Event &event) {
    switch (event.kind) {
    case ARRIVE: {
        Packet packet = event.packet;
        Flow &flow = flows[packet.flow];
        packet.hop++;
        if (size_t(packet.hop) < flow.path.size()) {
            forward(event.where, packet);
        } else if (packet.acknowledges) {
            acknowledged(packet.flow, packet.marked);
        } else {
            if (packet.last) flow.done = now;
            Packet answer{packet.flow, 0, int(CONTROL_NBYTES), false, true, packet.marked, 0};
            int back = links[flow.path.back()].reverse;
            links[back].control.push_back(answer);
            send(back);
        }
        break;
    }
    case SENT: {
        Link &link = links[event.where];
        link.busy = false;
        const Packet &packet = event.packet;
        if (!packet.acknowledges && packet.hop > 0) { // it leaves a switch
            link.queued -= packet.size;
            used[link.from] -= packet.size;
            int came_over = flows[packet.flow].path[packet.hop - 1];
            links[came_over].held -= packet.size;
            check_pause(came_over);
        }
        send(event.where);
        break;
    }
    case WAKE:
        send(event.where);
        break;
    case PAUSE:
    case RESUME:
        links[event.where].paused = event.kind == PAUSE;
        send(event.where);
        break;
    case ALPHA: {
        Flow &flow = flows[event.where];
        if (flow.sent < flow.nbytes) {
            flow.alpha = (1 - ALPHA_GAIN) * flow.alpha + (flow.seen_for_alpha ? ALPHA_GAIN : 0);
            flow.seen_for_alpha = false;
            later(now + ALPHA_EVERY, ALPHA, event.where);
        }
        break;
    }
    case DECREASE: {
        Flow &flow = flows[event.where];
        if (flow.sent < flow.nbytes) {
            if (flow.seen_for_decrease) cut(flow, event.where);
            flow.seen_for_decrease = false;
            later(now + DECREASE_EVERY, DECREASE, event.where);
        }
        break;
    }
    case INCREASE:
        increase(event.where, event.version);
        break;
    }
}

int main() {
    long many;
    unsigned long seed;
    if (scanf("%ld %ld %ld %d %lu %ld", &payload, &header, &buffer_nbytes, &dcqcn, &seed, &many) != 6) return 2;
    draws.seed(seed);
    int nodes = 0;
    for (long i = 0; i < many; i++) {
        Link link;
        double latency_ns;
        if (scanf("%d %d %lf %lf", &link.from, &link.to, &link.gbps, &latency_ns) != 4) return 2;
        link.ps_per_byte = 8000.0 / link.gbps;
        link.latency = Time(latency_ns * 1000);
        link.reverse = int(i ^ 1);
        nodes = std::max(nodes, std::max(link.from, link.to) + 1);
        links.push_back(link);
    }
    used.resize(nodes);
    sending.resize(links.size());
    turn.resize(links.size());
    if (scanf("%ld", &many) != 1) return 2;
    for (long i = 0; i < many; i++) {
        Flow flow;
        double start_ns;
        int hops;
        if (scanf("%ld %lf %d", &flow.nbytes, &start_ns, &hops) != 3) return 2;
        flow.start = Time(start_ns * 1000);
        flow.path.resize(hops);
        for (int &hop : flow.path)
            if (scanf("%d", &hop) != 1) return 2;
        flow.rate = flow.target = links[flow.path[0]].gbps;
        sending[flow.path[0]].push_back(int(i));
        later(flow.start, WAKE, flow.path[0]);
        flows.push_back(flow);
    }
    uint64_t count = 0;
    size_t left = flows.size();
    while (!events.empty() && left) {
        Event event = events.top();
        events.pop();
        now = event.at;
        count++;
        happen(event);
        if (event.kind == ARRIVE && flows[event.packet.flow].done == now && event.packet.last) left--;
    }
    if (left) return 1;
    for (const Flow &flow : flows) printf("%ld\n", flow.done);
    fprintf(stderr, "%lu events, %ld pauses\n", count, pauses);
}
