// A listener under leat-run: the mark by which connectors know it, and where its offers are taken.
// See meeting.h.
#pragma once

#include <netinet/tcp.h>

#include "preload/descriptors.h"

namespace leat::preload {

// Maximum segment sizes. All are below half of the window that loopback opens with, because the
// kernel would cut larger ones; the listener's are below the connector's, because each end learns
// the smaller of both.
inline constexpr int kListenerBase = 28'000;
inline constexpr int kCodeStep = 16;  // timestamps take 12 bytes off what the connector learns
inline constexpr unsigned kCodes = 256;
inline constexpr int kLastListenerSize = kListenerBase + static_cast<int>(kCodes) * kCodeStep;
static_assert(kListenerBase % kCodeStep == 0 && kCodeStep > TCPOLEN_TSTAMP_APPA);

// The code that the listener's SYN-ACK had, or -1 if it is not under leat-run.
int listener_code(const tcp_info& info) noexcept;

// Before the kernel's listen(), true if the socket was marked, and if so after it. Keep errno.
bool before_listen(int fd, Reference& socket) noexcept;
void after_listen(int fd, Reference& socket, int backlog) noexcept;
// A socket that listened before may have another port now, and so another place for offers.
void listens_again(int fd, Object& listener, int backlog) noexcept;

// Before it and later: takes the program's TCP_DEFER_ACCEPT off the kernel's socket, on which no
// first bytes of carried connections come, to tell it back.
void keep_deferred(int fd, Object& listener) noexcept;

// A listening socket that is not known by this number, but marked, is a copy that was made out of
// our sight; from then on it is known.
void find_listener(int fd) noexcept;
// A listening TCP socket whose offers arrive at the place of that port and code.
bool is_listener_of(int fd, unsigned port, unsigned code) noexcept;

}  // namespace leat::preload
