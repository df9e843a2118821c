/**
 * Barriers and exchanges. Threads at a block's barrier or at an exchange are checked when every thread has
 * run as far as it can (block.cpp). The last thread at a numbered barrier or at the cluster's resumes the
 * others.
 */
#include "waiting.h"

#include "launch.h"
#include "status.h"

namespace emulator {

namespace {

inline __attribute__((always_inline)) void waitAt(State state, int line) {
  Thread& thread = launch->threads[launch->running];
  thread.state = state;
  thread.line = line;
  leaveKernel(thread);
}

}  // namespace

void hookBarrier(int line) { waitAt(State::atBarrier, line); }

void hookAwaitPrevious() {
  if (launch->isInPast) waitAt(State::forPrevious, 0);
}

unsigned long long hookExchange(EmulatorExchange kind, unsigned mask, unsigned long long value, unsigned source) {
  const unsigned self = launch->running;
  Thread& thread = launch->threads[self];
  if ((mask >> self % warpSize & 1) == 0) fail(launchFailed, "a thread that is not in its own mask");
  thread.state = State::inExchange;
  thread.kind = kind;
  thread.mask = mask;
  thread.brought = value;
  leaveKernel(thread);
  if (kind != emulatorShuffle) return thread.votes;
  // The value of a lane outside the mask is undefined: use one that can't pass for a result.
  if (source >= warpSize || (mask >> source & 1) == 0) return ~0ull;
  return launch->threads[self / warpSize * warpSize + source].carried;
}

void hookMeet(unsigned barrier, unsigned threads, int line) {
  Launch& own = *launch;
  const unsigned rank = own.module->place->rank;
  if (barrier < 1 || barrier > 15) failInLine(launchFailed, "a barrier that is not one of 1 to 15", line);
  if (threads == 0 || threads % warpSize != 0 || threads > own.threadsApart) {
    failInLine(launchFailed, "a barrier for " + std::to_string(threads) + " threads", line);
  }
  Meeting& meeting = own.blocks[rank].meetings[barrier];
  if (meeting.arrived > 0 && meeting.expected != threads) {
    failInLine(launchFailed, "a barrier for " + std::to_string(threads) + " threads at which others wait for " +
                                 std::to_string(meeting.expected), line);
  }
  meeting.expected = threads;
  meeting.arrived += 1;
  if (meeting.arrived < threads) {
    own.threads[own.running].barrier = static_cast<unsigned char>(barrier);
    return waitAt(State::atMeeting, line);
  }
  meeting.arrived = 0;
  Thread* members = own.threadsOf(rank);
  for (unsigned index = 0; index < own.threadCount; ++index) {
    if (members[index].state == State::atMeeting && members[index].barrier == barrier) members[index].state = State::ready;
  }
}

void hookArriveInCluster(int line) {
  Launch& own = *launch;
  Thread& thread = own.threads[own.running];
  if (thread.step != ClusterStep::outside) {
    failInLine(launchFailed, "a thread that arrives in its cluster twice and did not wait", line);
  }
  thread.step = ClusterStep::arrived;
  own.clusterArrived += 1;
  if (own.clusterArrived < own.threadCount * own.blocks.size()) return;
  own.clusterArrived = 0;
  for (Thread& other : own.threads) {
    const bool waits = other.state == State::inCluster;
    other.step = waits ? ClusterStep::outside : ClusterStep::complete;
    if (waits) other.state = State::ready;
  }
}

void hookAwaitCluster(int line) {
  Thread& thread = launch->threads[launch->running];
  if (thread.step == ClusterStep::outside) {
    failInLine(launchFailed, "a thread that waits for its cluster and did not arrive", line);
  }
  if (thread.step == ClusterStep::arrived) return waitAt(State::inCluster, line);
  thread.step = ClusterStep::outside;
}

}  // namespace emulator
