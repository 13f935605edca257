/* Sends a line to echo_server and prints what comes back, with leat's C API:
 * `echo_client ADDRESS [TEXT]`. */
#include <leat/c.h>
#include <stdio.h>
#include <string.h>

static int fail(const char* what) {
  fprintf(stderr, "echo_client: %s: %s\n", what, leat_last_error());
  return 1;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr,
            "Usage: echo_client ADDRESS [TEXT], such as: echo_client 127.0.0.1:7777 hello\n");
    return 2;
  }
  const char* text = argc > 2 ? argv[2] : "hello";
  const size_t bytes = strlen(text);

  const int socket = leat_connect_uri(argv[1]);
  if (socket < 0) return fail("cannot connect");
  for (size_t sent = 0; sent < bytes;) {
    const ssize_t count = leat_send(socket, text + sent, bytes - sent, MSG_NOSIGNAL);
    if (count < 0) return fail("cannot send");
    sent += (size_t)count;
  }
  if (leat_shutdown(socket, SHUT_WR) < 0) return fail("cannot end");

  char answer[4096];
  ssize_t count = 0;
  while ((count = leat_recv(socket, answer, sizeof answer, 0)) > 0) {
    fwrite(answer, 1, (size_t)count, stdout);
  }
  if (count < 0) return fail("cannot receive");
  putchar('\n');
  return leat_close(socket) < 0 ? fail("cannot close") : 0;
}
