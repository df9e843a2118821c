/** A running launch: its threads, what each of them waits for, and the blocks that run concurrently. */
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "../kernel-table.h"
#include "block.h"
#include "fiber.h"
#include "tensor-map.h"

namespace emulator {

constexpr unsigned warpSize = 32;

/**
 * The order matters: threads in states after `inExchange` may be resumed by threads of other warps and
 * blocks.
 */
enum class State : unsigned char { ready, atBarrier, done, inExchange, atNamedBarrier, atMbarrier, inCluster, inGridDependencyWait };

/** A thread's progress through the cluster's barrier: it arrives, all others arrive, it waits. */
enum class ClusterStep : unsigned char { outside, arrived, complete };

struct Thread {
  void* stackPointer;
  State state;
  ClusterStep step;
  /** The numbered barrier at which it waits. */
  unsigned char barrier;
  /** The line at which it waits. */
  int line;
  /** Its input to an exchange, and its output. */
  EmulatorExchange kind;
  unsigned mask;
  unsigned votes;
  /** Its commits of asynchronous copies from shared memory. */
  unsigned commits;
  union {
    unsigned long long input;
    /** The mbarrier at which it waits. */
    uint64_t* mbarrier;
  };
  unsigned long long output;
};

/** Threads that have reached a numbered barrier; zero if none waits. */
struct NamedBarrier {
  unsigned expected, arrived;
};

struct Block {
  /** Its index in the grid. */
  unsigned index;
  /** Threads that have not ended. */
  unsigned left;
  NamedBarrier namedBarriers[16];
};

/** A pending copy: of contiguous bytes, or of a tensor map's box if `from` is nullptr. */
struct Copy {
  void* to;
  const void* from;
  unsigned bytes;
  uint64_t* mbarrier;
  unsigned rank;
  // A copy of the tensor map: the thread that started the copy may have ended, and its parameters with it.
  TensorMap map;
  Corner corner;
};

/** The products of a thread that have not completed: in order, each with its group. */
struct PendingProducts {
  struct Product {
    unsigned group;
    std::function<void()> multiply;
  };
  std::deque<Product> products;
  /** The number of groups that have been committed. */
  unsigned groups = 0;
};

/** A pending copy of a box from shared memory, by the thread with this index. */
struct BoxStore {
  unsigned thread;
  /** The number of the thread's commit that ended its group; 0 before that. */
  unsigned group;
  const void* from;
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
  /** True if it sees memory from before the preceding launch until it waits. True if the running blocks do so. */
  bool isPdl;
  bool isInSnapshot = false;
  /** The blocks that run concurrently: one, or those of a cluster. */
  std::vector<Block> blocks;
  /** Their threads, block after block; each block starts at a whole warp. */
  std::vector<Thread> threads;
  /** Of each of these threads. Products complete at once unless threads run in reverse order. */
  std::vector<PendingProducts> products;
  unsigned threadStride;
  /** The first block's dynamic shared memory; the others follow at `emulatorClusterStride`. */
  uint64_t dynamicShared = 0;
  uint64_t dynamicSharedBytes = 0;
  /** True if that memory belongs to this launch, and not to the module. */
  bool hasClusterMemory = false;
  /** Threads that have reached the cluster's barrier. */
  unsigned clusterArrived = 0;
  std::vector<Copy> copies;
  std::vector<BoxStore> stores;
  /** The running thread; all of them, one after the other, if none waits. */
  unsigned running = 0;
  /** The first thread of its block. */
  unsigned firstOfBlock = 0;
  void* scheduler = nullptr;
  int signal = 0;
  void* signalAddress = nullptr;
  Fault fault;

  Thread* threadsOf(unsigned rank) { return &threads[rank * threadStride]; }
  uint64_t dynamicSharedOf(unsigned rank) const { return dynamicShared + static_cast<uint64_t>(rank) * emulatorClusterStride; }
};

// Not `thread_local`: from another object it would be read through a function.
extern __thread Launch* launch;
/** True if a kernel's code runs on this thread, so that a signal is its fault. */
extern __thread volatile bool isInKernel;

/**
 * Leaves a thread that waits for others. Inline, because the processor mispredicts every return on the way
 * back.
 */
inline __attribute__((always_inline)) void leaveKernel(Thread& thread) {
  isInKernel = false;
  emulator_switch(&thread.stackPointer, launch->scheduler);
  isInKernel = true;
}
/** Ends the launch from within one of its threads. */
[[noreturn]] void fail(int status, const std::string& what);
[[noreturn]] void failInLine(int status, const std::string& what, int line);
/** From now on a signal of the processor ends the kernel's launch. */
void catchSignals();

}  // namespace emulator
