// A progress bar on standard error: only where that is a terminal, redrawn at most ten times a
// second.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

// For one thread. Cheap to call often: a redraw that is not due costs one clock read.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label)
      : label_(std::move(label)), visible_(isatty(STDERR_FILENO) == 1) {}
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar() { clear(); }

  // `fraction` of 1 is done; `note` stands behind the bar ("1.2 GB/s").
  void update(double fraction, const std::string& note = {}) {
    if (!visible_) return;
    const auto now = std::chrono::steady_clock::now();
    if (drawn_ && now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    drawn_ = true;
    const double done = std::clamp(fraction, 0.0, 1.0);
    const auto filled = static_cast<std::size_t>(done * kWidth);
    const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
    std::fprintf(stderr, "\r%s [%s] %3.0f %% %s\x1b[K", label_.c_str(), bar.c_str(), done * 100,
                 note.c_str());
    std::fflush(stderr);
  }

  // Wipes the bar, so that other lines can be printed.
  void clear() {
    if (!drawn_) return;
    std::fputs("\r\x1b[K", stderr);
    std::fflush(stderr);
    drawn_ = false;
  }

 private:
  static constexpr std::size_t kWidth = 32;

  std::string label_;
  bool visible_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};
