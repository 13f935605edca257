// Turns a failed call of libibverbs or librdmacm into a leat::Error. These calls fail in three
// styles, each with a helper here that passes success through. Not for the hot path, where a
// failure is a state of the queue pair instead of an exception.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string>

#include "leat/error.h"

namespace leat::detail {

// "<call> on <where> failed: <strerror>", with fitting advice. `where` is "mlx5_0:1".
[[nodiscard]] Error ib_error(const std::string& call, const std::string& where, int system_errno);

// Style 1, NULL and errno: ibv_alloc_pd, ibv_reg_mr, ibv_create_qp, rdma_create_event_channel.
template <class T>
T* ib_pointer(T* result, const std::string& call, const std::string& where) {
  if (result == nullptr) throw ib_error(call, where, errno);
  return result;
}

// Style 2, 0 or a positive errno: ibv_modify_qp, ibv_query_port, ibv_req_notify_cq.
inline void ib_status(int result, const std::string& call, const std::string& where) {
  if (result != 0) throw ib_error(call, where, result);
}

// Style 3, a count, or -1 and errno: ibv_query_gid_table (which negates the errno) and every int of
// librdmacm.
template <class Count>
Count ib_count(Count result, const std::string& call, const std::string& where) {
  if (result < 0) throw ib_error(call, where, result == -1 ? errno : static_cast<int>(-result));
  return result;
}

// "8192 kB" or "unlimited", and what to do about it.
std::string memlock_limit();
std::string memlock_advice();

// "64 MiB", "12345 bytes".
std::string size_text(std::size_t bytes);

}  // namespace leat::detail
