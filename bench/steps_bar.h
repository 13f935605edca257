// A progress bar over several steps of equal length, one for each size that is measured.
#pragma once

#include <string>

#include "examples/progress_bar.h"

namespace leat::bench {

class StepsBar {
 public:
  StepsBar(const std::string& label, std::size_t steps)
      : bar_(label), steps_(static_cast<double>(steps)) {}

  // The fraction of the step under way.
  void update(double fraction) { bar_.update((done_ + fraction) / steps_); }
  // Wipes the bar, so that other lines can be printed.
  void clear() { bar_.clear(); }
  // Ends a step and wipes the bar, so that its result can be printed.
  void step_done() {
    done_ += 1;
    bar_.clear();
  }

 private:
  ::ProgressBar bar_;
  double steps_;
  double done_ = 0;
};

}  // namespace leat::bench
