/* The C API from C: linked, and errors arrive as errno and a sentence. */
#include <errno.h>
#include <leat/c.h>
#include <stdio.h>

int main(void) {
  errno = 0;
  if (leat_recv(-1, NULL, 0, 0) != -1 || errno != EBADF) return 1;
  printf("leat %s: %s\n", leat_version(), leat_last_error());
  return leat_version()[0] != '\0' && leat_last_error()[0] != '\0' ? 0 : 1;
}
