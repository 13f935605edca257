// Sets of epoll and sockets whose calls come in every order that has a meaning: what the set says
// after each step.
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "case.h"

namespace posix_cases {
namespace {

// Steps, of one letter each, so that an order is a word.
constexpr char kSocket = 'S';
constexpr char kBind = 'B';
constexpr char kListen = 'L';
constexpr char kConnect = 'C';  // the peer connects, or this side does
constexpr char kAccept = 'P';
constexpr char kAdd = 'A';
constexpr char kDuplicate = 'D';
constexpr char kClose = 'X';   // the first number of the two
constexpr char kRemove = 'R';  // by the number under which it was added
constexpr char kBytes = 'T';   // the peer sends
constexpr char kEnd = 'E';     // the peer ends

// What the peer is told to do.
constexpr int kOrderEnds = -1;

struct Plan {
  std::string steps;
  std::vector<std::pair<char, char>> before;  // the first of each pair comes before the second
};

const Plan& listener_plan() {
  static const Plan plan{"SBLCPADXR",
                         {{kSocket, kBind},
                          {kBind, kListen},
                          {kListen, kConnect},
                          {kConnect, kAccept},
                          {kSocket, kAdd},
                          {kSocket, kDuplicate},
                          {kDuplicate, kClose},
                          {kAdd, kRemove}}};
  return plan;
}

const Plan& connection_plan() {
  static const Plan plan{"SCTEADXR",
                         {{kSocket, kConnect},
                          {kConnect, kBytes},
                          {kBytes, kEnd},
                          {kSocket, kAdd},
                          {kSocket, kDuplicate},
                          {kDuplicate, kClose},
                          {kAdd, kRemove}}};
  return plan;
}

// Every order of the plan's steps that it allows.
std::vector<std::string> orders_of(const Plan& plan) {
  std::vector<std::string> orders;
  std::string order = plan.steps;
  std::sort(order.begin(), order.end());
  do {
    const bool allowed = std::all_of(plan.before.begin(), plan.before.end(), [&](const auto& pair) {
      return order.find(pair.first) < order.find(pair.second);
    });
    if (allowed) orders.push_back(order);
  } while (std::next_permutation(order.begin(), order.end()));
  return orders;
}

// How a connection comes to be.
enum class Way { kListener, kBlocking, kNonblocking, kAccepted };

// Takes the steps of one order, and says of each what the set has to say then.
class Interpreter {
 public:
  // `given` listens for the peer where the socket under test is accepted or connects: it is not
  // under test itself. `port`: of the peer's.
  Interpreter(const Side& side, Way way, unsigned events, int given, int port)
      : side_(side), way_(way), events_(events), given_(given), port_(port) {}
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  ~Interpreter() {
    for (const int fd : {first_, copy_, accepted_, set_})
      if (fd >= 0) close(fd);
  }

  // With `each`, the set is looked at after each step, else only at the end.
  void take(const std::string& order, bool each) {
    std::string line;
    for (const char step : order) {
      line += step;
      line += take(step);
      if (each || &step == &order.back()) line += look(step);
    }
    side_.say(line);
  }

 private:
  // The number that is open; the first of two.
  int live() const { return first_ >= 0 ? first_ : copy_; }

  std::string result(const char* call, long value) const {
    if (value >= 0) return "";
    return std::string("(") + call + " " + strerrorname_np(errno) + ")";
  }

  std::string take(char step) {
    switch (step) {
      case kSocket:
        return make();
      case kBind: {
        const sockaddr_in address = meeting_place(0);
        return result("bind",
                      bind(live(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)));
      }
      case kListen:
        return result("listen", listen(live(), 4));
      case kConnect:
        return connect_them();
      case kAccept:
        accepted_ = accept(live(), nullptr, nullptr);
        return result("accept", accepted_);
      case kAdd: {
        epoll_event event{};
        event.events = events_;
        event.data.u64 = kData;
        added_ = live();
        in_set_ = true;
        return result("add", epoll_ctl(set_, EPOLL_CTL_ADD, added_, &event));
      }
      case kDuplicate:
        copy_ = dup(first_);
        return result("dup", copy_);
      case kClose:
        return result("close", close(std::exchange(first_, -1)));
      case kRemove: {
        const std::string text = result("remove", epoll_ctl(set_, EPOLL_CTL_DEL, added_, nullptr));
        in_set_ = in_set_ && !text.empty();
        return text;
      }
      case kBytes:
        side_.tell(1);
        wait_bytes(side_, live(), 1);
        return "";
      default:
        side_.tell(1);
        wait_for(side_, live(), POLLRDHUP);
        settle();
        return "";
    }
  }

  std::string make() {
    if (way_ == Way::kAccepted) {
      side_.tell(1);
      first_ = accept(given_, nullptr, nullptr);
      side_.hear();  // connect() has returned: until then an offer of leat-run's may be late
    } else {
      const int flags = way_ == Way::kNonblocking ? SOCK_NONBLOCK : 0;
      first_ = socket(AF_INET, SOCK_STREAM | flags, 0);
    }
    return result("socket", first_);
  }

  std::string connect_them() {
    if (way_ == Way::kAccepted) return "";
    if (way_ == Way::kListener) {
      sockaddr_in address{};
      socklen_t length = sizeof(address);
      require(getsockname(live(), reinterpret_cast<sockaddr*>(&address), &length) == 0,
              "getsockname");
      side_.tell(ntohs(address.sin_port));
      wait_for(side_, live(), POLLIN);
      return "";
    }
    const std::string text = result("connect", connect_to(live(), port_));
    // Accepted: then this side is connected too, whatever the call said.
    side_.hear();
    return text;
  }

  // The kernel wakes waiters after an end can be seen; a call that takes its lock comes after that.
  void settle() const {
    int bytes = 0;
    require(ioctl(live(), FIONREAD, &bytes) == 0, "ioctl");
  }

  std::string look(char step) {
    // The kernel has queued a connection before it tells the set.
    const int milliseconds = step == kConnect && way_ == Way::kListener && in_set_ ? 10 : 0;
    epoll_event event{};
    const int count = epoll_wait(set_, &event, 1, milliseconds);
    if (count == 0) return " ";
    if (count < 0) return result("wait", count) + " ";
    return "=" + epoll_names(event.events) + (event.data.u64 == kData ? "" : " of another") + " ";
  }

  static constexpr std::uint64_t kData = 0x123456789abc;

  const Side& side_;
  Way way_;
  unsigned events_;
  int given_;
  int port_;
  int set_ = epoll_create1(0);
  int first_ = -1;
  int copy_ = -1;
  int accepted_ = -1;
  int added_ = -1;
  bool in_set_ = false;
};

// The set's side.
template <Way kWay, unsigned kEvents, bool kEach>
void take_orders(Side& side) {
  const int port = kWay == Way::kListener || kWay == Way::kAccepted ? 0 : side.hear();
  const int given = kWay == Way::kAccepted ? side.listen_here() : -1;
  for (const std::string& order :
       orders_of(kWay == Way::kListener ? listener_plan() : connection_plan())) {
    {
      Interpreter interpreter(side, kWay, kEvents, given, port);
      interpreter.take(order, kEach);
      side.tell(kOrderEnds);
    }
    side.hear();
  }
  side.tell(0);
}

// The peer of listeners: connects where it is told to.
void connect_where_told(Side& side) {
  for (int port = side.hear(); port != 0; port = side.hear()) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    require(connect_to(fd, port) == 0, "connect");
    require(side.hear() == kOrderEnds, "the end of an order");
    close(fd);
    side.tell();
  }
}

// The peer of connections: the first word of each order is for connecting, then for a byte and for
// the end.
void follow(const Side& side, int fd) {
  side.hear();
  send_text(side, fd, "x");
  side.hear();
  require(shutdown(fd, SHUT_WR) == 0, "shutdown");
  require(side.hear() == kOrderEnds, "the end of an order");
  close(fd);
  side.tell();
}

void accept_and_follow(Side& side) {
  const int listener = side.listen_here();
  const std::size_t orders = orders_of(connection_plan()).size();
  for (std::size_t i = 0; i < orders; ++i) {
    const int fd = accept(listener, nullptr, nullptr);
    require(fd >= 0, "accept");
    side.tell();
    follow(side, fd);
  }
  require(side.hear() == 0, "the end of all");
}

void connect_and_follow(Side& side) {
  const int port = side.hear();
  while (side.hear() != 0) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    require(connect_to(fd, port) == 0, "connect");
    side.tell();
    follow(side, fd);
  }
}

constexpr unsigned kLevel = EPOLLIN | EPOLLOUT | EPOLLRDHUP;
constexpr unsigned kEdge = kLevel | EPOLLET;
constexpr unsigned kOneShot = kLevel | EPOLLONESHOT;

}  // namespace

Cases order_cases() {
  constexpr bool kEach = true;
  constexpr bool kAtEnd = false;
  return {
      {"order.listener_level", take_orders<Way::kListener, kLevel, kEach>, connect_where_told},
      {"order.listener_edge", take_orders<Way::kListener, kEdge, kEach>, connect_where_told},
      {"order.listener_one_shot", take_orders<Way::kListener, kOneShot, kEach>, connect_where_told},
      {"order.listener_level_at_end", take_orders<Way::kListener, kLevel, kAtEnd>,
       connect_where_told},
      {"order.listener_edge_at_end", take_orders<Way::kListener, kEdge, kAtEnd>,
       connect_where_told},
      {"order.accepted_level", take_orders<Way::kAccepted, kLevel, kEach>, connect_and_follow},
      {"order.accepted_edge", take_orders<Way::kAccepted, kEdge, kEach>, connect_and_follow},
      {"order.accepted_one_shot", take_orders<Way::kAccepted, kOneShot, kEach>, connect_and_follow},
      {"order.connecting_level", accept_and_follow, take_orders<Way::kBlocking, kLevel, kEach>},
      {"order.connecting_edge", accept_and_follow, take_orders<Way::kBlocking, kEdge, kEach>},
      {"order.connecting_one_shot", accept_and_follow,
       take_orders<Way::kBlocking, kOneShot, kEach>},
      {"order.connecting_edge_at_end", accept_and_follow,
       take_orders<Way::kBlocking, kEdge, kAtEnd>},
      {"order.nonblocking_level", accept_and_follow, take_orders<Way::kNonblocking, kLevel, kEach>},
      {"order.nonblocking_edge", accept_and_follow, take_orders<Way::kNonblocking, kEdge, kEach>},
      {"order.nonblocking_one_shot", accept_and_follow,
       take_orders<Way::kNonblocking, kOneShot, kEach>},
      {"order.nonblocking_edge_at_end", accept_and_follow,
       take_orders<Way::kNonblocking, kEdge, kAtEnd>},
  };
}

}  // namespace posix_cases
