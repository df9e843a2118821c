/**
 * A block's threads. They run one after the other if none waits for another, otherwise as fibers that
 * alternate; so do the threads of all blocks of a cluster. A deadlock ends the launch.
 */
#include "block.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "cluster-memory.h"
#include "control.h"
#include "mbarrier.h"
#include "launch.h"
#include "snapshot.h"
#include "tensor-cores.h"
#include "barriers.h"

namespace emulator {

namespace {

Stacks stacks;

void hookFault(int status, const char* what, int line) { failInLine(status, what, line); }

void endThread(Launch& current, unsigned self) {
  const unsigned rank = self / current.threadStride;
  if (hasStores(current)) fail(launchFailed, "a thread that ended before its copies had read shared memory");
  current.threads[self].state = State::done;
  if (!current.products[self].products.empty()) fail(launchFailed, "a thread that ended before its products completed");
  if (--current.blocks[rank].left > 0) return;
  if (hasCopiesFor(current, rank)) fail(launchFailed, "a block that ended before a copy completed");
  if (current.blocks.size() > 1) closeClusterMemory(rank);
}

void startThread() {
  Launch& current = *launch;
  const unsigned self = current.running, thread = self - current.firstOfBlock;
  isInKernel = true;
  current.kernel->run(current.arguments, thread, thread + 1);
  isInKernel = false;
  endThread(current, self);
  void* unused;
  emulator_switch(&unused, current.scheduler);
}

/** Tells the module which block its threads belong to now. */
void enterBlock(Launch& current, unsigned rank) {
  EmulatorPosition& position = *current.module->position;
  current.firstOfBlock = rank * current.threadStride;
  position.block.x = current.blocks[rank].index;
  position.rank = rank;
  position.dynamicShared = current.dynamicSharedOf(rank);
}

void startBlock(Launch& current, unsigned rank, unsigned index) {
  current.blocks[rank] = {current.isReversed ? current.blockCount - 1 - index : index, current.threadCount, {}};
  enterBlock(current, rank);
  // NaN in every format: it shows in any read of memory that no thread of this block has written.
  std::memset(current.module->sharedStart, 0xff, static_cast<size_t>(current.module->sharedEnd - current.module->sharedStart));
  if (current.hasClusterMemory) openClusterMemory(rank, current.dynamicSharedBytes);
}

void startPlainBlocks() {
  Launch& current = *launch;
  isInKernel = true;
  for (unsigned index = 0; index < current.blockCount; ++index) {
    startBlock(current, 0, index);
    if (!current.isReversed) current.kernel->run(current.arguments, 0, current.threadCount);
    else for (unsigned thread = current.threadCount; thread-- > 0;) current.kernel->run(current.arguments, thread, thread + 1);
  }
  isInKernel = false;
  void* unused;
  emulator_switch(&unused, current.scheduler);
}

void resume(Launch& current, unsigned index) {
  current.running = index;
  current.module->position->thread.x = index - current.firstOfBlock;
  emulator_switch(&current.scheduler, current.threads[index].stackPointer);
}

/** Resumes the threads whose exchange is complete; false if no thread of the warp can continue. */
bool completeExchanges(Launch& current, unsigned first, unsigned end) {
  bool isAny = false;
  for (unsigned index = first; index < end; ++index) {
    if (current.threads[index].state != State::inExchange) {
      // Another thread of the warp may have resumed it.
      isAny = isAny || current.threads[index].state == State::ready;
      continue;
    }
    const unsigned mask = current.threads[index].mask;
    const EmulatorExchange kind = current.threads[index].kind;
    bool isComplete = true;
    unsigned votes = 0;
    for (unsigned lane = 0; lane < warpSize; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      const unsigned other = first + lane;
      isComplete = other < end && current.threads[other].state == State::inExchange && current.threads[other].mask == mask &&
                   current.threads[other].kind == kind;
      if (!isComplete) break;
      votes |= static_cast<unsigned>(current.threads[other].input != 0) << lane;
    }
    if (!isComplete) continue;
    for (unsigned lane = 0; lane < warpSize; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      Thread& member = current.threads[first + lane];
      member.output = member.input;
      member.votes = votes;
      member.state = State::ready;
    }
    isAny = true;
  }
  return isAny;
}

/** Runs a warp until each of its threads has ended or waits for others. */
void runWarp(Launch& current, unsigned first, unsigned end) {
  do {
    for (unsigned step = 0; step < end - first; ++step) {
      const unsigned index = current.isReversed ? end - 1 - step : first + step;
      if (current.threads[index].state != State::ready) continue;
      resume(current, index);
      if (current.fault.status != success) return;
    }
  } while (completeExchanges(current, first, end));
  bool isInExchange = false;
  for (unsigned index = first; index < end; ++index) {
    if (current.threads[index].state < State::inExchange) continue;
    if (current.threads[index].state > State::inExchange) return;
    isInExchange = true;
  }
  if (!isInExchange) return;
  current.fault = {launchFailed, std::string(current.kernel->name) + ": threads of a warp wait for others that never arrive"};
}

/** What a thread waits for, in the same words for all threads that wait for the same. */
std::string describeWait(const Launch& current, const Block& block, const Thread& thread) {
  const std::string line = " in line " + std::to_string(thread.line);
  const auto describeArrived = [](size_t arrived, size_t expected) {
    return ", with " + std::to_string(arrived) + " of " + std::to_string(expected) + " arrivals,";
  };
  const NamedBarrier& namedBarrier = block.namedBarriers[thread.barrier];
  switch (thread.state) {
    case State::atBarrier: return "at the block's barrier" + line;
    case State::inExchange: return "for others of their warp";
    case State::atNamedBarrier:
      return "at barrier " + std::to_string(thread.barrier) + describeArrived(namedBarrier.arrived, namedBarrier.expected) + line;
    case State::atMbarrier: return "at an mbarrier that " + describeMbarrier(thread.mbarrier) + line;
    case State::inCluster:
      return "at the cluster's barrier" + describeArrived(current.clusterArrived, current.threadCount * current.blocks.size()) + line;
    default: return "";
  }
}

/** No thread can continue: reports which thread waits for what. */
std::string describeStall(const Launch& current) {
  std::string text = ": no thread can continue";
  for (size_t rank = 0; rank < current.blocks.size(); ++rank) {
    const Block& block = current.blocks[rank];
    std::map<std::string, unsigned> waits;
    for (unsigned index = 0; index < current.threadCount; ++index) {
      const Thread& thread = current.threads[rank * current.threadStride + index];
      if (thread.state != State::done) waits[describeWait(current, block, thread)] += 1;
    }
    for (const auto& [what, count] : waits) {
      text += "; " + std::to_string(count) + " of " + std::to_string(current.threadCount) + " threads of block " +
              std::to_string(block.index) + " wait " + what;
    }
  }
  return text;
}

/** Of the threads of a block. */
struct Waiting {
  unsigned atBarrier = 0, ready = 0, elsewhere = 0;
  bool isSameLine = true;
};

Waiting countWaiting(const Launch& current, const Thread* members) {
  Waiting waiting;
  for (unsigned index = 0; index < current.threadCount; ++index) {
    const State state = members[index].state;
    if (state == State::atBarrier) {
      waiting.atBarrier += 1;
      waiting.isSameLine = waiting.isSameLine && members[index].line == members[0].line;
    } else if (state == State::ready) {
      waiting.ready += 1;
    } else if (state != State::done) {
      waiting.elsewhere += 1;
    }
  }
  return waiting;
}

/**
 * If no thread can continue before the preceding launch ends, resumes those that wait for it: that launch
 * ends by itself. False if none waits for it. So a thread that waits for one of them is not a deadlock.
 */
bool endPrecedingLaunch(Launch& current) {
  if (!current.isInSnapshot) return false;
  current.isInSnapshot = false;
  if (!leaveSnapshot() && current.fault.status == success) {
    current.fault = {launchFailed, std::string(current.kernel->name) + ": writes before it has waited for the preceding launch"};
  }
  bool isAny = false;
  for (Thread& thread : current.threads) {
    if (thread.state != State::inGridDependencyWait) continue;
    thread.state = State::ready;
    isAny = true;
  }
  return isAny && current.fault.status == success;
}

/**
 * Runs after every thread has run as far as it can, and resumes them. False when all have ended, or none can
 * continue.
 */
bool resumeThreads(Launch& current) {
  bool isAny = false, waitsElsewhere = current.blocks.size() > 1;
  unsigned atBarrier = 0;
  for (unsigned rank = 0; rank < current.blocks.size(); ++rank) {
    Thread* members = current.threadsOf(rank);
    const Waiting waiting = countWaiting(current, members);
    isAny = isAny || waiting.ready > 0;
    waitsElsewhere = waitsElsewhere || waiting.elsewhere > 0;
    atBarrier += waiting.atBarrier;
    if (waiting.atBarrier < current.threadCount) continue;
    if (!waiting.isSameLine) {
      const std::string name = current.kernel->name, count = std::to_string(current.threadCount);
      current.fault = {launchFailed, name + ": " + count + " of " + count + " threads wait at a barrier, and not all at the same"};
      return false;
    }
    for (unsigned index = 0; index < current.threadCount; ++index) members[index].state = State::ready;
    isAny = true;
  }
  // Copies that started in the past load the bytes of that time.
  if (isAny || deliverCopy(current) || endPrecedingLaunch(current)) return true;
  const auto hasLeft = [](const Block& block) { return block.left > 0; };
  if (current.fault.status != success || std::none_of(current.blocks.begin(), current.blocks.end(), hasLeft)) return false;
  const std::string ofBlock =
      ": " + std::to_string(atBarrier) + " of " + std::to_string(current.threadCount) + " threads wait at a barrier";
  current.fault = {launchFailed, current.kernel->name + (waitsElsewhere ? describeStall(current) : ofBlock)};
  return false;
}

/** Runs the blocks of a cluster concurrently, starting with this block of the grid. */
void runCluster(Launch& current, unsigned first) {
  const unsigned size = static_cast<unsigned>(current.blocks.size());
  current.clusterArrived = 0;
  for (unsigned rank = 0; rank < size; ++rank) {
    // In reverse order, the last block of a cluster still has the last rank.
    startBlock(current, rank, current.isReversed ? first + size - 1 - rank : first + rank);
    for (unsigned thread = 0; thread < current.threadCount; ++thread) {
      const unsigned index = rank * current.threadStride + thread;
      current.threads[index] = {};
      current.products[index] = {};
      current.threads[index].stackPointer = prepareFiber(stacks.top(index), startThread);
    }
  }
  current.isInSnapshot = current.isPdl;
  if (current.isInSnapshot) enterSnapshot();
  const unsigned warps = current.threadStride / warpSize;
  do {
    for (unsigned step = 0; step < warps * size && current.fault.status == success; ++step) {
      const unsigned warp = current.isReversed ? warps * size - 1 - step : step, rank = warp / warps;
      enterBlock(current, rank);
      runWarp(current, warp * warpSize, std::min((warp + 1) * warpSize, rank * current.threadStride + current.threadCount));
    }
  } while (current.fault.status == success && resumeThreads(current));
  endPrecedingLaunch(current);
}

/**
 * The address of dynamic shared memory: in the module, or, if blocks run concurrently, in memory of each
 * block.
 */
void allocateDynamicShared(Launch& current, unsigned bytes) {
  const EmulatorModule& module = *current.module;
  current.hasClusterMemory = module.dynamicSharedStart == module.dynamicSharedEnd && bytes > 0;
  current.dynamicSharedBytes = current.hasClusterMemory ? bytes : static_cast<uint64_t>(module.dynamicSharedEnd - module.dynamicSharedStart);
  current.dynamicShared = current.hasClusterMemory ? prepareClusterMemory(bytes) : reinterpret_cast<uint64_t>(module.dynamicSharedStart);
}

}  // namespace

Fault runGrid(const EmulatorModule& module, const EmulatorKernel& kernel, const Grid& grid, void** arguments) {
  const auto [blocks, threads, sharedBytes, isPdl] = grid;
  catchSignals();
  *module.hooks = {hookBarrier,         hookExchange,     hookFault, hookNamedBarrier,
                   hookClusterArrive, hookClusterWait, hookMbarrier,  hookCpAsyncBulk,
                   hookTmaLoad,        hookTmaStore,     hookBulkCommit, hookBulkWaitRead,
                   hookGridDependencyWait, hookWgmmaSs, hookWgmmaRs, hookWgmmaRsHalves,
                   hookWgmmaCommit,    hookWgmmaWait};
  Launch current;
  current.module = &module;
  current.kernel = &kernel;
  current.arguments = arguments;
  current.blockCount = blocks;
  current.threadCount = threads;
  current.threadStride = (threads + warpSize - 1) / warpSize * warpSize;
  current.isReversed = setting("reversed") != 0;
  current.isPdl = isPdl && hasSnapshot();
  current.blocks.resize(kernel.clusterSize);
  allocateDynamicShared(current, sharedBytes);
  *module.position = {{0, 0, 0}, {0, 0, 0},          {threads, 1, 1}, {blocks, 1, 1},
                   0,         kernel.clusterSize, current.dynamicShared,    current.dynamicSharedBytes};
  launch = &current;
  // All threads of a PDL launch wait for the preceding one.
  if (kernel.isCooperative || kernel.clusterSize > 1 || current.isPdl) {
    current.threads.resize(kernel.clusterSize * current.threadStride);
    current.products.resize(current.threads.size());
    for (unsigned block = 0; block < blocks && current.fault.status == success; block += kernel.clusterSize) {
      runCluster(current, block);
    }
  } else {
    emulator_switch(&current.scheduler, prepareFiber(stacks.top(0), startPlainBlocks));
  }
  launch = nullptr;
  return current.fault;
}

}  // namespace emulator
