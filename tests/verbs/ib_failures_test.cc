// How the ib device copes with hardware that has fewer capabilities than other hardware, refuses
// what is posted, or fails. Needs a device, as ib_connection.h says.
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/mapped_memory.h"
#include "base/system_error.h"
#include "leat/channel.h"
#include "leat/error.h"
#include "leat/listener.h"
#include "support/devices.h"
#include "support/pattern.h"
#include "support/scale.h"
#include "verbs/ib/connect.h"
#include "verbs/ib/events.h"
#include "verbs/ib/handle.h"
#include "verbs/ib/probe.h"
#include "verbs/ib_connection.h"

namespace leat::detail {
namespace {

using testing::HasSubstr;
using testing::Not;

// --- Devices that can less than this one, or less than they said.

// One end as the device makes it, of a domain that the test has changed.
struct BareEnd {
  explicit BareEnd(const std::string& name) {
    const IbProbe probe = probe_ib(name.substr(3), context);
    domain = {.verbs_name = name.substr(3),
              .where = name,
              .port = probe.port,
              .context = context.get(),
              .events = IbEvents::of(context.get()),
              .limits = probe.limits,
              .mtu = probe.mtu,
              .reads = probe.reads};
    pd.reset(ibv_alloc_pd(context.get()));
    domain.pd = pd.get();
  }

  IbContext context;
  IbDomainHandle pd;
  IbDomain domain;
  std::unique_ptr<QueuePair> queue_pair;
};

void connect_bare(BareEnd& passive, BareEnd& active, const std::string& address) {
  const auto offer = ib_offer(passive.domain, {}, address);
  auto accepted =
      std::async(std::launch::async, [&] { return offer->accept(notice_deadline(), -1); });
  active.queue_pair = ib_connect(active.domain, offer->blob(), {}, notice_deadline());
  passive.queue_pair = accepted.get();
}

class IbConnectionSetUp : public IbConnection {};

TEST_F(IbConnectionSetUp, SidesThatDifferInReadsAgreeOnTheFewer) {
  for (const auto& [passive_reads, active_reads] : {std::pair{1, 16}, {16, 1}, {2, 2}}) {
    BareEnd passive(name_);
    BareEnd active(peer_name_);
    passive.domain.reads = static_cast<std::uint8_t>(passive_reads);
    active.domain.reads = static_cast<std::uint8_t>(active_reads);
    connect_bare(passive, active, device_address(name_));
    const std::string fewer = std::to_string(std::min(passive_reads, active_reads));
    for (const BareEnd* end : {&passive, &active})
      EXPECT_THAT(end->queue_pair->describe(), HasSubstr("reads " + fewer + " and " + fewer));
  }
}

TEST_F(IbConnectionSetUp, DeviceThatIsIwarpIsRefusedAndConnectionsGoOverTcp) {
  BareEnd end(name_);
  first_ = End();
  second_ = End();
  const ibv_transport_type type =
      std::exchange(end.context->device->transport_type, IBV_TRANSPORT_IWARP);
  const std::string host = device_address(name_);
  Options options;
  options.device = "^shm";
  {
    Listener listener(host + ":0", options);
    auto accepted = std::async(std::launch::async, [&] { return listener.accept(); });
    const Channel channel = Channel::connect(listener.address(), options);
    EXPECT_EQ(channel.device(), "tcp");
    EXPECT_EQ(accepted.get().device(), "tcp");
  }
  options.device = name_;
  options.fallback = "never";
  {
    Listener listener(host + ":0", options);
    auto accepted = std::async(std::launch::async, [&] { return listener.accept(); });
    try {
      Channel::connect(listener.address(), options);
      ADD_FAILURE() << "it is connected";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("iWARP"));
    }
    listener.close();
    EXPECT_THROW(accepted.get(), Error);
  }
  end.context->device->transport_type = type;
}

// EXPECTs that the active end takes inlined bytes from memory at once, `most` of them too.
void expect_inlining(BareEnd& passive, BareEnd& active, std::size_t most) {
  const MappedMemory memory = MappedMemory::anonymous(kRegionBytes);
  const IbRegionHandle region(ibv_reg_mr(passive.pd.get(), memory.data(), memory.size(),
                                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  ASSERT_NE(region, nullptr);
  constexpr std::size_t kReceives = 64;
  ASSERT_EQ(passive.queue_pair->post_receives(kReceives), kReceives);
  std::vector<std::byte> source;
  for (std::uint64_t i = 0; i < kReceives; ++i) {
    const std::size_t bytes = i % 2 == 0 ? most : 1 + i % most;
    source.resize(bytes);
    fill_pattern(source, i);
    SendRequest request = immediate_request(static_cast<std::uint32_t>(i), i);
    request.inlined = true;
    request.local = source.data();
    request.bytes = bytes;
    request.remote_address = reinterpret_cast<std::uint64_t>(memory.data());
    request.remote_key = region->rkey;
    ASSERT_EQ(active.queue_pair->post_send({&request, 1}), 1u);
    std::ranges::fill(source, std::byte{0});
    Completion completion;
    const Deadline deadline = notice_deadline();
    while (passive.queue_pair->poll_receives({&completion, 1}) == 0)
      ASSERT_FALSE(passed(deadline)) << active.queue_pair->describe();
    ASSERT_EQ(completion.bytes, bytes);
    ASSERT_EQ(pattern_mismatch(memory.span().first(bytes), i), bytes) << "request " << i;
    while (active.queue_pair->poll_sends({&completion, 1}) == 0) ASSERT_FALSE(passed(deadline));
    ASSERT_EQ(completion.id, i);
    ASSERT_EQ(completion.status, CompletionStatus::kSuccess);
  }
}

TEST_F(IbConnectionSetUp, InlinesMoreThanTheDeviceGrants) {
  constexpr std::size_t kBytes = 4000;
  BareEnd passive(name_);
  BareEnd active(peer_name_);
  active.domain.limits.max_inline_bytes = kBytes;
  connect_bare(passive, active, device_address(name_));
  expect_inlining(passive, active, kBytes);
}

thread_local bool refuses_inline_data = false;

TEST_F(IbConnectionSetUp, InlinesOnADeviceThatGrantsNone) {
  BareEnd passive(name_);
  BareEnd active(peer_name_);
  const std::size_t most = active.domain.limits.max_inline_bytes;
  ASSERT_GT(most, 0U);
  refuses_inline_data = true;
  connect_bare(passive, active, device_address(name_));
  refuses_inline_data = false;
  expect_inlining(passive, active, most);
  // The queue has not become shorter for that.
  const std::vector<SendRequest> requests(1000, write(0));
  EXPECT_EQ(active.queue_pair->post_send(requests), QueueDepths().send_requests);
}

// --- A device that refuses requests, which only hardware does. Its functions are replaced for the
// thread that asks for it.

thread_local bool refuses = false;
decltype(ibv_context_ops::post_send) device_post_send = nullptr;
decltype(ibv_context_ops::post_recv) device_post_receive = nullptr;

// Takes the first of a list and refuses the second.
template <class Work, class Post>
int post_first_only(ibv_qp* queue_pair, Work* works, Work** refused, Post post) {
  if (!refuses) return post(queue_pair, works, refused);
  Work* rest = works->next;
  works->next = nullptr;
  const int result = post(queue_pair, works, refused);
  works->next = rest;
  if (result != 0 || rest == nullptr) return result;
  *refused = rest;
  return EINVAL;
}

class IbRefusal : public IbConnection {
 protected:
  void SetUp() override {
    IbConnection::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    int count = 0;
    const IbDeviceList list(ibv_get_device_list(&count));
    for (ibv_device* device : std::span(list.get(), static_cast<std::size_t>(count))) {
      if (ibv_get_device_name(device) == name_.substr(3)) context_ = open_ib_context(device);
    }
    ASSERT_NE(context_, nullptr);
    device_post_send = context_->ops.post_send;
    device_post_receive = context_->ops.post_recv;
    context_->ops.post_send = [](ibv_qp* queue_pair, ibv_send_wr* works, ibv_send_wr** refused) {
      return post_first_only(queue_pair, works, refused, device_post_send);
    };
    context_->ops.post_recv = [](ibv_qp* queue_pair, ibv_recv_wr* works, ibv_recv_wr** refused) {
      return post_first_only(queue_pair, works, refused, device_post_receive);
    };
    refuses = true;
  }
  void TearDown() override {
    refuses = false;
    if (context_ == nullptr) return;
    context_->ops.post_send = device_post_send;
    context_->ops.post_recv = device_post_receive;
  }

  IbContext context_;
};

TEST_F(IbRefusal, OfASendFailsItAndFlushesWhatFollows) {
  std::vector<SendRequest> requests;
  for (std::uint64_t id = 0; id < 4; ++id) requests.push_back(write(id));
  ASSERT_EQ(first_.queue_pair->post_send(requests), requests.size());
  const Completion taken = first_.next(Side::kSend);
  EXPECT_EQ(taken.id, 0u);
  bool told = taken.status != CompletionStatus::kSuccess;
  for (std::uint64_t id = 1; id < 4; ++id) {
    first_.expect_send(id, told ? CompletionStatus::kFlushed : CompletionStatus::kOther);
    told = true;
  }
  const SendRequest late = write(4);
  ASSERT_EQ(first_.queue_pair->post_send({&late, 1}), 1u);
  first_.expect_send(4, CompletionStatus::kFlushed);
}

TEST_F(IbRefusal, OfSendsKeepsTheQueueBounded) {
  const std::vector<SendRequest> requests(1000, write(0));
  const std::size_t accepted = first_.queue_pair->post_send(requests);
  EXPECT_EQ(accepted, QueueDepths().send_requests);
  EXPECT_EQ(first_.queue_pair->post_send(requests), 0u);
  for (std::size_t i = 0; i < accepted; ++i) first_.next(Side::kSend);
  EXPECT_EQ(first_.queue_pair->post_send(requests), accepted);
}

TEST_F(IbRefusal, OfAReceiveFlushesThemInOrder) {
  ASSERT_EQ(first_.queue_pair->post_receives(4), 4U);
  ASSERT_EQ(first_.queue_pair->post_receives(1), 1U);
  for (int i = 0; i < 5; ++i) first_.expect_receive(CompletionStatus::kFlushed);
  const SendRequest request = write(5);
  ASSERT_EQ(first_.queue_pair->post_send({&request, 1}), 1u);
  first_.expect_send(5, CompletionStatus::kFlushed);
}

// A peer that is not leat sends without a place.
TEST_F(IbRefusal, SendOfAPeerThatIsNotLeatIsAStray) {
  context_->ops.post_send = [](ibv_qp* queue_pair, ibv_send_wr* works, ibv_send_wr** refused) {
    works->opcode = IBV_WR_SEND;
    return device_post_send(queue_pair, works, refused);
  };
  refuses = false;
  ASSERT_EQ(second_.queue_pair->post_receives(1), 1U);
  first_.post(immediate_request(0));
  const Completion completion = second_.next(Side::kReceive);
  EXPECT_STREQ(to_string(completion.status), to_string(CompletionStatus::kSuccess));
  EXPECT_EQ(completion.kind, CompletionKind::kStray);
}

// --- A device that fails, which only hardware does.

thread_local bool cannot_poll = false;
decltype(ibv_context_ops::poll_cq) device_poll = nullptr;

TEST_F(IbRefusal, OfPollingFlushesEverythingInOrder) {
  refuses = false;
  device_poll = context_->ops.poll_cq;
  context_->ops.poll_cq = [](ibv_cq* queue, int count, ibv_wc* works) {
    return cannot_poll ? -1 : device_poll(queue, count, works);
  };
  ASSERT_EQ(first_.queue_pair->post_receives(4), 4U);
  const std::array sends{write(10), write(11)};
  ASSERT_EQ(first_.queue_pair->post_send(sends), sends.size());
  cannot_poll = true;
  for (const std::uint64_t id : {10u, 11u})
    EXPECT_NE(first_.next(Side::kSend).status, CompletionStatus::kSuccess) << id;
  for (int i = 0; i < 4; ++i) first_.expect_receive(CompletionStatus::kFlushed);
  ASSERT_EQ(first_.queue_pair->post_receives(1), 1U);
  first_.expect_receive(CompletionStatus::kFlushed);
  cannot_poll = false;
  context_->ops.poll_cq = device_poll;
}

// Says events as the kernel does, through a pipe in the place of the device's own descriptor.
class KernelsWords {
 public:
  explicit KernelsWords(ibv_context* context) : context_(context), own_(dup(context->async_fd)) {
    std::array<int, 2> ends{};
    check(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), "pipe2");
    const Fd said(ends[0]);
    says_ = Fd(ends[1]);
    check(dup2(said.get(), context_->async_fd), "dup2");
  }
  ~KernelsWords() { dup2(own_.get(), context_->async_fd); }
  KernelsWords(const KernelsWords&) = delete;
  KernelsWords& operator=(const KernelsWords&) = delete;

  // `element`: the number of a port, or the address of an object.
  void say(std::uint64_t element, std::uint32_t type) const {
    const struct {
      std::uint64_t element;
      std::uint32_t type;
      std::uint32_t reserved;
    } event{element, type, 0};
    ASSERT_EQ(::write(says_.get(), &event, sizeof event), ssize_t{sizeof event});
  }

 private:
  ibv_context* const context_;
  const Fd own_;
  Fd says_;
};

TEST_F(IbRefusal, OfTheWholeDeviceWakesAndFlushes) {
  refuses = false;
  const KernelsWords kernel(context_.get());
  ASSERT_EQ(first_.queue_pair->post_receives(1), 1U);
  kernel.say(1, IBV_EVENT_PORT_ERR);
  first_.post(write(1));
  first_.expect_send(1, CompletionStatus::kSuccess);  // a port may come back

  kernel.say(0, IBV_EVENT_DEVICE_FATAL);
  first_.expect_receive(CompletionStatus::kFlushed);
  first_.post(write(2));
  EXPECT_NE(first_.next(Side::kSend).status, CompletionStatus::kSuccess);
  // All connections of the device, though only one has read it.
  for (const Side side : {Side::kSend, Side::kReceive}) {
    pollfd wait{second_.queue_pair->event_fd(side), POLLIN, 0};
    EXPECT_EQ(poll(&wait, 1, poll_timeout_ms(notice_deadline())), 1) << "no event";
  }
  EXPECT_THAT(first_.queue_pair->describe(), HasSubstr("the device has failed"));
  first_ = End();
  second_ = End();
}

// What the test has said is not what the kernel has counted, and destroying waits for that.
void forget_event(ibv_cq* queue) { --queue->async_events_completed; }
void forget_event(ibv_qp* queue_pair) { --queue_pair->events_completed; }

thread_local ibv_cq* polled = nullptr;
thread_local ibv_qp* posted_to = nullptr;

// The queue of one side is overrun: it reports nothing of what is posted, and nothing of this.
TEST_F(IbRefusal, OfACompletionQueueEndsItsConnection) {
  refuses = false;
  device_poll = context_->ops.poll_cq;
  for (const Side side : {Side::kSend, Side::kReceive}) {
    connect(device_address(name_));  // for which the kernel wants its own descriptor
    const KernelsWords kernel(context_.get());
    context_->ops.poll_cq = [](ibv_cq* queue, int, ibv_wc*) {
      polled = queue;
      return 0;
    };
    Completion completion;
    ASSERT_EQ(first_.queue_pair->post_receives(2), 2U);
    first_.post(write(1));
    if (side == Side::kSend)
      first_.queue_pair->poll_sends({&completion, 1});
    else
      first_.queue_pair->poll_receives({&completion, 1});
    ibv_cq* const overrun = polled;
    kernel.say(reinterpret_cast<std::uintptr_t>(overrun), IBV_EVENT_CQ_ERR);
    // Whichever connection takes the event, sleepers of this one wake.
    second_.queue_pair->arm(side);
    for (const Side sleeping : {Side::kSend, Side::kReceive}) {
      pollfd wait{first_.queue_pair->event_fd(sleeping), POLLIN, 0};
      EXPECT_EQ(poll(&wait, 1, poll_timeout_ms(notice_deadline())), 1) << "no event";
    }
    for (int i = 0; i < 2; ++i) first_.expect_receive(CompletionStatus::kFlushed);
    first_.expect_send(1, CompletionStatus::kFlushed);
    EXPECT_THAT(first_.queue_pair->describe(), HasSubstr("its queues have failed"));
    context_->ops.poll_cq = device_poll;
    forget_event(overrun);
    // Only this connection.
    EXPECT_THAT(second_.queue_pair->describe(), Not(HasSubstr("failed")));
  }
}

TEST_F(IbRefusal, OfAQueuePairEndsItsConnectionAfterWhatCameBefore) {
  refuses = false;
  context_->ops.post_send = [](ibv_qp* queue_pair, ibv_send_wr* works, ibv_send_wr** refused) {
    posted_to = queue_pair;
    return device_post_send(queue_pair, works, refused);
  };
  const KernelsWords kernel(context_.get());
  ASSERT_EQ(first_.queue_pair->post_receives(2), 2U);
  ASSERT_EQ(second_.queue_pair->post_receives(1), 1U);
  second_.post(immediate_request(7));
  second_.expect_send(0, CompletionStatus::kSuccess);
  first_.post(immediate_request(8));
  first_.expect_send(0, CompletionStatus::kSuccess);
  kernel.say(reinterpret_cast<std::uintptr_t>(posted_to), IBV_EVENT_QP_FATAL);
  second_.queue_pair->arm(Side::kSend);
  first_.expect_receive(CompletionStatus::kSuccess);
  first_.expect_receive(CompletionStatus::kFlushed);
  forget_event(posted_to);
}

}  // namespace
}  // namespace leat::detail

// In front of libibverbs, for devices that refuse a queue pair with inline data.
extern "C" ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
  if (leat::detail::refuses_inline_data && wanted->cap.max_inline_data != 0) {
    errno = EINVAL;
    return nullptr;
  }
  static const auto create =
      reinterpret_cast<decltype(&ibv_create_qp)>(dlsym(RTLD_NEXT, "ibv_create_qp"));
  return create(domain, wanted);
}
