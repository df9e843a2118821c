/** A launch while it runs: its threads, what each of them waits for, and the blocks that run side by side. */
#pragma once

#include <cstdint>
#include <vector>

#include "../kernel-table.h"
#include "block.h"
#include "fiber.h"
#include "tensor-map.h"

namespace emulator {

constexpr unsigned warpSize = 32;

/** In this order: who is behind `inExchange` may be let go on by others than its warp and its block. */
enum class State : unsigned char { ready, atBarrier, done, inExchange, atMeeting, atGate, inCluster, forPrevious };

/** A thread's way through the cluster's barrier: it arrives, all others do, it waits. */
enum class ClusterStep : unsigned char { outside, arrived, complete };

struct Thread {
  void* stackPointer;
  State state;
  ClusterStep step;
  /** The numbered barrier at which it waits. */
  unsigned char barrier;
  /** Of the place at which it waits. */
  int line;
  /** What it brings to an exchange, and what it takes from it. */
  EmulatorExchange kind;
  unsigned mask;
  unsigned votes;
  union {
    unsigned long long brought;
    /** The gate at which it waits. */
    uint64_t* gate;
  };
  unsigned long long carried;
};

/** Threads that come to a numbered barrier; none where nobody waits. */
struct Meeting {
  unsigned expected, arrived;
};

struct Block {
  /** Which of the grid it is. */
  unsigned index;
  /** Threads that have not ended. */
  unsigned left;
  Meeting meetings[16];
};

/** A copy that is still to come: of bytes that follow each other, or of a map's box, where `from` is nullptr. */
struct Copy {
  void* to;
  const void* from;
  unsigned bytes;
  uint64_t* gate;
  unsigned rank;
  // The map itself: the thread that began the copy may have ended, and its parameters with it.
  TensorMap map;
  Corner corner;
};

/** The launch that runs on this thread. */
struct Launch {
  const EmulatorModule* module;
  const EmulatorKernel* kernel;
  void** arguments;
  unsigned blockCount;
  unsigned threadCount;
  bool isReversed;
  /** May it see the past of the launch before it until it has waited? Do the blocks that run do so? */
  bool isPdl;
  bool isInPast = false;
  /** The blocks that run side by side: one, or those of a cluster. */
  std::vector<Block> blocks;
  /** Theirs, block after block, each block's from a whole warp on. */
  std::vector<Thread> threads;
  unsigned threadsApart;
  /** The first block's launched memory; the others' follow at `emulatorClusterStride`. */
  uint64_t launched = 0;
  uint64_t launchedBytes = 0;
  /** Is that memory of this launch, and not of the module? */
  bool hasOwnMemory = false;
  /** Threads that have come to the cluster's barrier. */
  unsigned clusterArrived = 0;
  std::vector<Copy> copies;
  /** Which thread runs; all of them, one after the other, where none waits. */
  unsigned running = 0;
  /** The first of its block. */
  unsigned firstOfBlock = 0;
  void* scheduler = nullptr;
  int signal = 0;
  void* signalAddress = nullptr;
  Fault fault;

  Thread* threadsOf(unsigned rank) { return &threads[rank * threadsApart]; }
  uint64_t launchedOf(unsigned rank) const { return launched + static_cast<uint64_t>(rank) * emulatorClusterStride; }
};

// Not `thread_local`, which is read through a function where it is defined elsewhere.
extern __thread Launch* launch;
/** Is a kernel's code running on this thread, so that a signal is its fault? */
extern __thread volatile bool isInKernel;

/** Leaves a thread that waits for others. Inline, since the processor mispredicts every return on the way back. */
inline __attribute__((always_inline)) void leaveKernel(Thread& thread) {
  isInKernel = false;
  emulator_switch(&thread.stackPointer, launch->scheduler);
  isInKernel = true;
}
/** Ends the launch from within one of its threads. */
[[noreturn]] void fail(int status, const std::string& what);
[[noreturn]] void failInLine(int status, const std::string& what, int line);
/** From now on what the processor rejects of a kernel ends its launch. */
void catchSignals();

}  // namespace emulator
