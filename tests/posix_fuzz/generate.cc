#include "generate.h"

#include "author.h"

namespace posix_fuzz {
namespace {

struct Kind {
  int weight;
  void (*add)(Author&, int);
};
constexpr Kind kKinds[] = {
    {22, put},          {22, get},
    {8, close_one},     {6, open_one},
    {5, connect_one},   {6, accept_one},
    {8, poll_some},     {9, epoll_some},
    {4, shut},          {5, copy_one},
    {6, ask},           {3, set_option},
    {3, move_bytes},    {1, move_many_bytes},
    {1, pass_one},      {1, send_urgently},
    {4, processes},     {3, signals},
    {1, listen_one},    {1, look},
    {1, limit_numbers},
};

int total_weight() {
  int total = 0;
  for (const Kind& one : kKinds) total += one.weight;
  return total;
}

void add_steps(Author& author, int who) {
  int chosen = author.below(total_weight());
  for (const Kind& one : kKinds) {
    chosen -= one.weight;
    if (chosen < 0) return one.add(author, who);
  }
}

}  // namespace

Script generate(std::uint64_t seed, const Taste& taste) {
  Author author(seed, taste);
  if (author.chance(85)) begin_with_connection(author);
  const int count = 6 + author.below(author.chance(20) ? 45 : 22);
  for (int i = 0; i < count; ++i) {
    const int who = author.alive_actor();
    if (who != Author::kNoActor) add_steps(author, who);
    author.perhaps_awake();
  }
  end_with_look(author);
  return author.script();
}

}  // namespace posix_fuzz
