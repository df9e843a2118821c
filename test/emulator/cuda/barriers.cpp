/**
 * Barriers and exchanges. Threads at a block's barrier or at an exchange are checked when every thread has
 * run as far as it can (block.cpp). The last thread at a numbered barrier or at the cluster's resumes the
 * others.
 */
#include "barriers.h"

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

void hookGridDependencyWait() {
  if (launch->isInSnapshot) waitAt(State::inGridDependencyWait, 0);
}

unsigned long long hookExchange(EmulatorExchange kind, unsigned mask, unsigned long long value, unsigned source) {
  const unsigned self = launch->running;
  Thread& thread = launch->threads[self];
  if ((mask >> self % warpSize & 1) == 0) fail(launchFailed, "a thread that is not in its own mask");
  thread.state = State::inExchange;
  thread.kind = kind;
  thread.mask = mask;
  thread.input = value;
  leaveKernel(thread);
  if (kind != emulatorShuffle) return thread.votes;
  // The value of a lane outside the mask is undefined: use one that can't pass for a result.
  if (source >= warpSize || (mask >> source & 1) == 0) return ~0ull;
  return launch->threads[self / warpSize * warpSize + source].output;
}

void hookNamedBarrier(unsigned barrier, unsigned threads, int line) {
  Launch& current = *launch;
  const unsigned rank = current.module->position->rank;
  if (barrier < 1 || barrier > 15) failInLine(launchFailed, "a barrier that is not one of 1 to 15", line);
  if (threads == 0 || threads % warpSize != 0 || threads > current.threadStride) {
    failInLine(launchFailed, "a barrier for " + std::to_string(threads) + " threads", line);
  }
  NamedBarrier& namedBarrier = current.blocks[rank].namedBarriers[barrier];
  if (namedBarrier.arrived > 0 && namedBarrier.expected != threads) {
    failInLine(launchFailed, "a barrier for " + std::to_string(threads) + " threads at which others wait for " +
                                 std::to_string(namedBarrier.expected), line);
  }
  namedBarrier.expected = threads;
  namedBarrier.arrived += 1;
  if (namedBarrier.arrived < threads) {
    current.threads[current.running].barrier = static_cast<unsigned char>(barrier);
    return waitAt(State::atNamedBarrier, line);
  }
  namedBarrier.arrived = 0;
  Thread* members = current.threadsOf(rank);
  for (unsigned index = 0; index < current.threadCount; ++index) {
    if (members[index].state == State::atNamedBarrier && members[index].barrier == barrier) members[index].state = State::ready;
  }
}

void hookClusterArrive(int line) {
  Launch& current = *launch;
  Thread& thread = current.threads[current.running];
  if (thread.step != ClusterStep::outside) {
    failInLine(launchFailed, "a thread that arrives in its cluster twice without a wait", line);
  }
  thread.step = ClusterStep::arrived;
  current.clusterArrived += 1;
  if (current.clusterArrived < current.threadCount * current.blocks.size()) return;
  current.clusterArrived = 0;
  for (Thread& other : current.threads) {
    const bool waits = other.state == State::inCluster;
    other.step = waits ? ClusterStep::outside : ClusterStep::complete;
    if (waits) other.state = State::ready;
  }
}

void hookClusterWait(int line) {
  Thread& thread = launch->threads[launch->running];
  if (thread.step == ClusterStep::outside) {
    failInLine(launchFailed, "a thread that waits for its cluster without an arrival", line);
  }
  if (thread.step == ClusterStep::arrived) return waitAt(State::inCluster, line);
  thread.step = ClusterStep::outside;
}

}  // namespace emulator
