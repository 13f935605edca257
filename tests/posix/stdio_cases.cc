// Streams of the C library on connections: fdopen in every mode, and what it promises.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "case.h"

namespace posix_cases {
namespace {

void say_line(const Side& side, FILE* stream) {
  char line[64] = {};
  const bool good = fgets(line, sizeof(line), stream) != nullptr;
  side.say(good ? std::string("fgets = ") + line : "fgets = nothing\n");
}

}  // namespace

Cases stdio_cases() {
  return {
      {"stdio.lines",
       [](Side& side) {
         const int fd = side.connected();
         FILE* stream = fdopen(fd, "r");
         SAY(stream != nullptr);
         SAY(fileno(stream) == fd);
         say_line(side, stream);
         SAY(fgetc(stream));
         SAY(ungetc('z', stream));
         SAY(fgetc(stream));
         int number = 0;
         char word[16] = {};
         SAY(fscanf(stream, "%d %15s", &number, word));  // NOLINT(cert-err34-c)
         SAY(number);
         say_line(side, stream);
         char* line = nullptr;
         std::size_t length = 0;
         SAY(getline(&line, &length, stream));
         std::free(line);
         SAY(feof(stream));
         say_line(side, stream);
         SAY(feof(stream) != 0);
         SAY(ferror(stream));
         SAY(fclose(stream));
         SAY(close(fd));
       },
       [](Side& side) {
         const int fd = side.connected();
         FILE* stream = fdopen(fd, "w");
         SAY(fileno(stream) == fd);
         SAY(fputs("first line\n", stream));
         SAY(fprintf(stream, "x%d %s\n", 42, "word"));
         SAY(putc('l', stream));
         SAY(fflush(stream));
         SAY(dprintf(fd, "ast %s\n", "line"));
         SAY(fclose(stream));
       }},

      {"stdio.both_ways",
       [](Side& side) {
         const int fd = side.connected();
         FILE* stream = fdopen(fd, "r+");
         say_line(side, stream);
         SAY(fputs("answer\n", stream));
         SAY(fflush(stream));
         say_line(side, stream);
         SAY(fputs("second answer\n", stream));
         SAY(fclose(stream));
       },
       [](Side& side) {
         const int fd = side.connected();
         FILE* in = fdopen(dup(fd), "r");
         FILE* out = fdopen(fd, "w");
         SAY(fputs("question\n", out));
         SAY(fflush(out));
         say_line(side, in);
         SAY(fputs("second question\n", out));
         SAY(fflush(out));
         say_line(side, in);
         say_line(side, in);
         SAY(fclose(in));
         SAY(fclose(out));
       }},

      {"stdio.large",
       [](Side& side) {
         FILE* stream = fdopen(side.connected(), "r");
         Bytes data(3000000);
         SAY(fread(data.data(), 1, 10, stream));
         SAY(fread(data.data() + 10, 1, data.size() - 10, stream));
         side.say_data("received", data);
         SAY(fread(data.data(), 1, 10, stream));
         SAY(feof(stream) != 0);
         SAY(fclose(stream));
       },
       [](Side& side) {
         FILE* stream = fdopen(side.connected(), "w");
         const Bytes data = pattern(3000000);
         SAY(fwrite(data.data(), 1, 7, stream));
         SAY(fwrite(data.data() + 7, 1, 2000000, stream));
         for (std::size_t at = 2000007; at < data.size(); ++at) putc(data[at], stream);
         SAY(fclose(stream));
       }},

      {"stdio.written_then_read_raw",
       [](Side& side) {
         // EMP: fwrite out, read in, an own buffer, and no flush but before it reads.
         const int fd = side.connected();
         FILE* stream = fdopen(fd, "wb+");
         Bytes buffer(1 << 20);
         SAY(setvbuf(stream, reinterpret_cast<char*>(buffer.data()), _IOFBF, buffer.size()));
         const Bytes data = pattern(100000, 4);
         for (int round = 0; round < 5; ++round) {
           SAY(fwrite(data.data(), 1, data.size(), stream));
           SAY(fflush(stream));
           side.say_data("received", recv_all(side, fd, 50000));
         }
         SAY(fclose(stream));
       },
       [](Side& side) {
         const int fd = side.connected();
         FILE* stream = fdopen(fd, "wb+");
         const Bytes data = pattern(50000, 5);
         Bytes got(100000);
         for (int round = 0; round < 5; ++round) {
           SAY(fread(got.data(), 1, got.size(), stream));
           side.say_data("received", got);
           SAY(fwrite(data.data(), 1, data.size(), stream));
           SAY(fflush(stream));
         }
         SAY(fclose(stream));
       }},

      {"stdio.buffering",
       [](Side& side) {
         const int fd = side.connected();
         int step = 0;
         for (const std::size_t bytes : {4U, 3U, 9U}) {
           side.say_data(std::to_string(++step), recv_all(side, fd, bytes));
           char byte = 0;
           sleep_ms(20);
           SAY(recv(fd, &byte, 1, MSG_DONTWAIT));
           side.tell();
         }
         side.say_data("rest", recv_to_end(side, fd));
       },
       [](Side& side) {
         FILE* stream = fdopen(side.connected(), "w");
         SAY(setvbuf(stream, nullptr, _IOLBF, 4096));
         SAY(fputs("one\ntw", stream));
         side.hear();
         SAY(fputs("\n", stream));
         side.hear();
         SAY(setvbuf(stream, nullptr, _IONBF, 0));
         SAY(fputs("unbuf", stream));
         SAY(fputc('f', stream));
         SAY(fputs("ere", stream));
         side.hear();
         // What exit() must flush.
         SAY(setvbuf(stream, nullptr, _IOFBF, 4096));
         SAY(fputs("at exit", stream));
       }},

      {"stdio.modes",
       [](Side& side) {
         const int fd = side.connected();
         SAY(fdopen(fd, "q") == nullptr ? -1 : 0);
         SAY(fdopen(-1, "r") == nullptr ? -1 : 0);
         FILE* stream = fdopen(dup(fd), "r");
         SAY(fputc('x', stream));
         SAY(ferror(stream) != 0);
         clearerr(stream);
         SAY(fseek(stream, 0, SEEK_SET));
         SAY(ftell(stream));
         SAY(fclose(stream));
         stream = fdopen(dup(fd), "we");
         SAY(fgetc(stream));
         SAY(fcntl(fileno(stream), F_GETFD));
         SAY(fclose(stream));
         side.tell();
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         side.say_data("rest", recv_to_end(side, fd));
       }},

      {"stdio.would_block_and_broken",
       [](Side& side) {
         const int fd = side.connected();
         signal(SIGPIPE, SIG_IGN);
         set_blocking(fd, false);
         FILE* stream = fdopen(fd, "r+");
         SAY(fgetc(stream));  // with errno, as for all that is -1
         SAY(ferror(stream) != 0);
         clearerr(stream);
         side.tell();
         wait_bytes(side, fd, 2);
         SAY(fgetc(stream));
         SAY(fgetc(stream));
         side.tell();
         wait_for(side, fd, POLLHUP);
         SAY(fputc('x', stream));
         SAY(fflush(stream));
         SAY(ferror(stream) != 0);
         fclose(stream);
       },
       [](Side& side) {
         const int fd = side.connected();
         side.hear();
         send_text(side, fd, "ab");
         side.hear();
         const linger reset{1, 0};
         setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
         SAY(close(fd));
       }},

      {"stdio.standard_streams",
       [](Side& side) {
         // As a program of inetd: its input and output are the connection.
         const int fd = side.connected();
         SAY(dup2(fd, 0));
         SAY(dup2(fd, 1));
         close(fd);
         say_line(side, stdin);
         SAY(puts("answer"));
         SAY(fflush(stdout));
         say_line(side, stdin);
       },
       [](Side& side) {
         const int fd = side.connected();
         send_text(side, fd, "question\n");
         side.say_data("answer", recv_all(side, fd, 7));
         SAY(shutdown(fd, SHUT_WR));
         side.say_data("rest", recv_to_end(side, fd));
       }},
  };
}

}  // namespace posix_cases
