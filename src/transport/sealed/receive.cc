// The receive side: what is handed out was opened in memory that only this process can write.
#include <algorithm>
#include <new>
#include <utility>

#include "base/log.h"
#include "leat/error.h"
#include "transport/sealed/sealed.h"

namespace leat::detail {

ReceiveResult SealedTransport::try_receive(Context context, Delivery& delivery) {
  receive_error_.check();
  for (;;) {
    static_cast<void>(buffers_.next());
    Delivery outer;
    const ReceiveResult result = inner_->try_receive(context, outer);
    if (result == ReceiveResult::kNothing) return result;
    if (result == ReceiveResult::kEnd) {
      if (ended_[context]) return result;
      refuse("the end of context " + std::to_string(context) +
             " is not sealed: messages are missing");
    }
    if (open(context, outer, delivery) == ReceiveResult::kMessage) return ReceiveResult::kMessage;
  }
}

// kNothing: it was the flow's end.
ReceiveResult SealedTransport::open(Context context, Delivery& outer, Delivery& delivery) {
  const std::span<const std::byte> record(outer.begin(), outer.bytes);
  const std::size_t bytes = record.size() - std::min(record.size(), kSealTagBytes);
  delivery.context = context;
  delivery.bytes = bytes;
  delivery.data = nullptr;
  delivery.must_release = false;
  bool opened = false;
  bool is_end = false;
  try {
    if (!ended_[context]) {  // else nothing may come
      std::byte* memory = delivery.small.data();
      if (outer.heap) {
        // Memory of this process already, which goes on with the message.
        delivery.data = memory = outer.heap.get();
      } else if (bytes > Delivery::kSmallBytes) {
        delivery.ticket = buffers_.next();
        delivery.data = memory = buffers_.take(bytes).data();
        delivery.must_release = true;
      }
      opened = openers_[context]->open(SealedKind::kMessage, record, memory);
      is_end = !opened && opens_as_end(context, record);
      if (opened) {
        delivery.heap = std::move(outer.heap);
      } else {
        delivery.data = nullptr;
        if (delivery.must_release) buffers_.give_back(delivery.ticket);
      }
    }
  } catch (const std::bad_alloc&) {
    receive_error_.fail(ErrorCode::kResource,
                        "out of memory for a message that has arrived, which is lost");
  }
  if (outer.must_release) inner_->release(outer);
  if (opened) [[likely]]
    return ReceiveResult::kMessage;
  if (is_end) {
    ended_[context] = true;
    return ReceiveResult::kNothing;
  }
  refuse("a message of context " + std::to_string(context) +
         (ended_[context] ? " came behind the end" : " is not the one that was sealed"));
}

bool SealedTransport::opens_as_end(Context context, std::span<const std::byte> record) {
  if (record.size() != kSealTagBytes) return false;
  std::byte none{};
  return openers_[context]->open(SealedKind::kEnd, record, &none);
}

// Nothing is handed out from here on, in no context.
void SealedTransport::refuse(const std::string& what) {
  refused_.add(1);
  broken_.store(true, std::memory_order_relaxed);
  log(LogLevel::kWarn, describe() + ": " + what + "; the connection is over");
  stream_.abort();
  receive_error_.fail(ErrorCode::kAuthentication,
                      what + ": someone between the two sides has changed or removed messages (" +
                          describe() + ")");
}

void SealedTransport::release(Delivery& delivery) noexcept { buffers_.give_back(delivery.ticket); }

}  // namespace leat::detail
