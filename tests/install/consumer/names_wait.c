/* Includes only what it needs. */
#include <poll.h>

int wait_until_readable(int descriptor) {
  struct pollfd entry;
  entry.fd = descriptor;
  entry.events = POLLIN;
  return poll(&entry, 1, 30000) == 1;
}
