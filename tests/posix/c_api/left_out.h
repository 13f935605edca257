// The cases that leat/c.h does not claim, and why. docs/sockets.md says the same to users.
#pragma once

#include <map>
#include <string>

namespace posix_cases {

inline const std::map<std::string, std::string>& left_out_of_c_api() {
  static const std::map<std::string, std::string> cases = {
      {"process.", "handles stay with the process that made them"},
      {"exec.", "as process"},
      {"command.", "as process"},
      {"epoll_mixed.used_by_child", "as process"},
      {"limit.", "as exhaustion"},
      {"epoll_mixed.becomes_its_own_member", "no dup2 of sets"},
      {"fork.", "as process"},
      {"spawn.", "as process"},
      {"raw.", "system calls know nothing of handles"},
      {"syscall.", "as raw"},
      {"io_uring.", "as raw"},
      {"handler.", "handlers of signals must not use handles that a call works on"},
      {"ending.killed_with_unread", "as fault.killed_with_unread_data"},
      {"order.listener", "a dup or close of one of its numbers is an edge"},
      {"order.nonblocking", "as order.connecting"},
      {"order.connecting",
       "a dup or close of one of its numbers is an edge, EPOLL_CTL_DEL by one that was closed is "
       "ENOENT, and connecting is not an edge if it had EPOLLOUT before"},
      {"many.", "hundreds of handshakes, which take minutes in the guest with kernel RDMA"},
      {"jump.", "a handle whose call is left by longjmp stays in use"},
      {"epoll_shared.forked", "as process"},
      {"epoll_shared.closed_by_handler", "calls on handles are not for handlers of signals"},
      {"epoll_order.number_used_again", "no dup2; a connection has further descriptors"},
      {"stdio.", "fdopen is the C library's"},
      {"fortified.", "entry points of the C library"},
      {"call.many_messages", "no sendmmsg and recvmmsg"},
      {"signal.interrupts_receive", "has recvmmsg; c_api_test has the others"},
      {"call.messages_at_the_end", "as many_messages"},
      {"call.vectors_with_flags", "no preadv2 and pwritev2"},
      {"call.sendfile", "no sendfile"},
      {"call.splice", "no splice"},
      {"call.other_sockets", "leat_socket makes stream sockets only"},
      {"transfer.urgent", "MSG_OOB gives EOPNOTSUPP"},
      {"signal.asynchronous", "no SIGIO"},
      {"signal.handler_uses_new_connections",
       "calls on one handle are not for handlers of signals"},
      {"signal.handler_sends_within_send", "handlers must not call"},
      {"option.low_water", "SO_RCVLOWAT is ignored"},
      {"nonblocking.small_buffers", "the settings say how much room there is, not the options"},
      {"option.kinds", "fstat says that a handle is not a socket"},
      {"call.bad_arguments", "lseek and pread say that a handle is not a socket"},
      {"fault.killed_with_unread_data", "is an end in order: only a close knows of unread bytes"},
      {"fault.killed_after_its_end", "as killed_with_unread_data"},
      {"end.shut_down_then_sent_to", "one that has shut down both ways resets nothing"},
      {"end.never_accepted", "the end of the stream may be seen instead of the reset"},
      {"pointer.urgent", "as transfer.urgent"},
      {"pointer.no_vectors", "as many_messages and vectors_with_flags"},
      {"fault.number_used_again", "a connection has further descriptors, so others are free next"},
      {"descriptor.dup", "no dup and dup2; c_api_test has F_DUPFD"},
      {"descriptor.refused", "as dup"},
      {"descriptor.lowest_number", "as fault.number_used_again"},
      {"descriptor.passed", "handles cannot be passed on"},
      {"descriptor.listener_passed", "as descriptor.passed"},
      {"descriptor.close_range", "closes what leat needs; leat_close closes handles"},
      {"descriptor.close_from", "as close_range"},
      {"descriptor.close_strangers", "as close_range"},
      {"exhaustion.", "a connection takes about ten descriptors; c_api_test has EMFILE"},
      {"connect.late_and_fork", "as process"},
      {"connect.dissolved_and_again", "a handle has one connection in its life"},
      {"connect.to_itself", "is EPROTO: leat does not connect a socket to itself"},
  };
  return cases;
}

}  // namespace posix_cases
