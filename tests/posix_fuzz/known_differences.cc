#include "known_differences.h"

#include "steps.h"

namespace posix_fuzz {

bool is_unseen_close(int way) {
  return way == word_value(kCloseWays, "raw") || way == word_value(kCloseWays, "dlsym");
}

bool is_unseen_copy(int way) { return way == word_value(kDupWays, "raw_dup3"); }

bool is_unseen_end(const std::string& operation, const Step& step) {
  if (operation == "close") return is_unseen_close(step.arguments[1]);
  if (operation == "dup2") return is_unseen_copy(step.arguments[2]);
  return operation == "kill" || operation == "exit";
}

bool is_left_out(int option) {
  // low_water: "SO_RCVLOWAT: afterwards ignored".
  return option == word_value(kOptions, "RCVLOWAT") ||
         // urgent_inline: "SO_OOBINLINE ... else urgent bytes are lost".
         option == word_value(kOptions, "OOBINLINE") ||
         // corked: bytes go at once; on TCP they are held back for 200 ms.
         option == word_value(kOptions, "CORK") || option == word_value(kOptions, "NODELAY") ||
         // half_closed_time: how long a closed connection waits is seen by nobody.
         option == word_value(kOptions, "LINGER2") ||
         option == word_value(kOptions, "USER_TIMEOUT") || option == word_value(kOptions, "SYNCNT");
}

}  // namespace posix_fuzz
