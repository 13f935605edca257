// The smallest group: a master and three workers, here threads. docs/groups.md shows it.
#include <leat/leat.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

void work(const std::string& address) {
  leat::GroupWorker worker = leat::GroupWorker::connect(address);
  while (leat::Message task = worker.receive())  // false when the master has ended
    worker.send("worker " + std::to_string(worker.rank()) + " did " + std::string(task.text()));
}

int main() {
  leat::Listener listener("127.0.0.1:0");  // a real TCP port; may be closed once all are here
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(work, listener.address());
  {
    leat::GroupMaster master = leat::GroupMaster::accept(listener, 3);
    for (const char* task : {"this", "that"}) {
      master.broadcast(task);
      for (const leat::GroupMessage& answer : master.gather()) {
        if (answer.message)  // its bytes are where RDMA put them
          std::printf("%s\n", std::string(answer.message.text()).c_str());
        else  // that worker is gone, the others go on
          std::printf("%s\n", answer.end->reason.c_str());
      }
    }
  }  // the master ends
  for (std::thread& thread : threads) thread.join();
}
