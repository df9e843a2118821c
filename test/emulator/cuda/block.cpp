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
#include "gates.h"
#include "launch.h"
#include "past.h"
#include "tensor-cores.h"
#include "waiting.h"

namespace emulator {

namespace {

Stacks stacks;

void hookFault(int status, const char* what, int line) { failInLine(status, what, line); }

void endThread(Launch& own, unsigned self) {
  const unsigned rank = self / own.threadsApart;
  own.threads[self].state = State::done;
  if (--own.blocks[rank].left > 0) return;
  if (hasCopiesFor(own, rank)) fail(launchFailed, "a block that ended before a copy had come");
  if (own.blocks.size() > 1) closeClusterMemory(rank);
}

void startThread() {
  Launch& own = *launch;
  const unsigned self = own.running, thread = self - own.firstOfBlock;
  isInKernel = true;
  own.kernel->run(own.arguments, thread, thread + 1);
  isInKernel = false;
  endThread(own, self);
  void* forgotten;
  emulator_switch(&forgotten, own.scheduler);
}

/** Tells the module which block its threads belong to now. */
void enterBlock(Launch& own, unsigned rank) {
  EmulatorPlace& place = *own.module->place;
  own.firstOfBlock = rank * own.threadsApart;
  place.block.x = own.blocks[rank].index;
  place.rank = rank;
  place.launched = own.launchedOf(rank);
}

void startBlock(Launch& own, unsigned rank, unsigned index) {
  own.blocks[rank] = {own.isReversed ? own.blockCount - 1 - index : index, own.threadCount, {}};
  enterBlock(own, rank);
  // NaN in every format: it shows in any read of memory that no thread of this block has written.
  std::memset(own.module->sharedStart, 0xff, static_cast<size_t>(own.module->sharedEnd - own.module->sharedStart));
  if (own.hasOwnMemory) openClusterMemory(rank, own.launchedBytes);
}

void startPlainBlocks() {
  Launch& own = *launch;
  isInKernel = true;
  for (unsigned index = 0; index < own.blockCount; ++index) {
    startBlock(own, 0, index);
    if (!own.isReversed) own.kernel->run(own.arguments, 0, own.threadCount);
    else for (unsigned thread = own.threadCount; thread-- > 0;) own.kernel->run(own.arguments, thread, thread + 1);
  }
  isInKernel = false;
  void* forgotten;
  emulator_switch(&forgotten, own.scheduler);
}

void resume(Launch& own, unsigned index) {
  own.running = index;
  own.module->place->thread.x = index - own.firstOfBlock;
  emulator_switch(&own.scheduler, own.threads[index].stackPointer);
}

/** Resumes the threads whose exchange is complete; false if no thread of the warp can continue. */
bool completeExchanges(Launch& own, unsigned first, unsigned end) {
  bool isAny = false;
  for (unsigned index = first; index < end; ++index) {
    if (own.threads[index].state != State::inExchange) {
      // Another thread of the warp may have resumed it.
      isAny = isAny || own.threads[index].state == State::ready;
      continue;
    }
    const unsigned mask = own.threads[index].mask;
    const EmulatorExchange kind = own.threads[index].kind;
    bool isComplete = true;
    unsigned votes = 0;
    for (unsigned lane = 0; lane < warpSize; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      const unsigned other = first + lane;
      isComplete = other < end && own.threads[other].state == State::inExchange && own.threads[other].mask == mask &&
                   own.threads[other].kind == kind;
      if (!isComplete) break;
      votes |= static_cast<unsigned>(own.threads[other].brought != 0) << lane;
    }
    if (!isComplete) continue;
    for (unsigned lane = 0; lane < warpSize; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      Thread& member = own.threads[first + lane];
      member.carried = member.brought;
      member.votes = votes;
      member.state = State::ready;
    }
    isAny = true;
  }
  return isAny;
}

/** Runs a warp until each of its threads has ended or waits for others. */
void runWarp(Launch& own, unsigned first, unsigned end) {
  do {
    for (unsigned step = 0; step < end - first; ++step) {
      const unsigned index = own.isReversed ? end - 1 - step : first + step;
      if (own.threads[index].state != State::ready) continue;
      resume(own, index);
      if (own.fault.status != success) return;
    }
  } while (completeExchanges(own, first, end));
  bool isInExchange = false;
  for (unsigned index = first; index < end; ++index) {
    if (own.threads[index].state < State::inExchange) continue;
    if (own.threads[index].state > State::inExchange) return;
    isInExchange = true;
  }
  if (!isInExchange) return;
  own.fault = {launchFailed, std::string(own.kernel->name) + ": threads of a warp wait for others that don't come"};
}

/** What a thread waits for, in the same words for all threads that wait for the same. */
std::string describeWait(const Launch& own, const Block& block, const Thread& thread) {
  const std::string line = " in line " + std::to_string(thread.line);
  const auto describeArrived = [](size_t arrived, size_t expected) {
    return ", to which " + std::to_string(arrived) + " of " + std::to_string(expected) + " have come,";
  };
  const Meeting& meeting = block.meetings[thread.barrier];
  switch (thread.state) {
    case State::atBarrier: return "at the block's barrier" + line;
    case State::inExchange: return "for others of their warp";
    case State::atMeeting:
      return "at barrier " + std::to_string(thread.barrier) + describeArrived(meeting.arrived, meeting.expected) + line;
    case State::atGate: return "at a gate that " + describeGate(thread.gate) + line;
    case State::inCluster:
      return "at the cluster's barrier" + describeArrived(own.clusterArrived, own.threadCount * own.blocks.size()) + line;
    default: return "";
  }
}

/** No thread can continue: reports which thread waits for what. */
std::string describeStall(const Launch& own) {
  std::string text = ": nobody can go on";
  for (size_t rank = 0; rank < own.blocks.size(); ++rank) {
    const Block& block = own.blocks[rank];
    std::map<std::string, unsigned> waits;
    for (unsigned index = 0; index < own.threadCount; ++index) {
      const Thread& thread = own.threads[rank * own.threadsApart + index];
      if (thread.state != State::done) waits[describeWait(own, block, thread)] += 1;
    }
    for (const auto& [what, count] : waits) {
      text += "; " + std::to_string(count) + " of " + std::to_string(own.threadCount) + " threads of block " +
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

Waiting countWaiting(const Launch& own, const Thread* members) {
  Waiting waiting;
  for (unsigned index = 0; index < own.threadCount; ++index) {
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
bool endPrevious(Launch& own) {
  if (!own.isInPast) return false;
  own.isInPast = false;
  if (!leavePast() && own.fault.status == success) {
    own.fault = {launchFailed, std::string(own.kernel->name) + ": writes before it has waited for the launch before it"};
  }
  bool isAny = false;
  for (Thread& thread : own.threads) {
    if (thread.state != State::forPrevious) continue;
    thread.state = State::ready;
    isAny = true;
  }
  return isAny && own.fault.status == success;
}

/**
 * Runs after every thread has run as far as it can, and resumes them. False when all have ended, or none can
 * continue.
 */
bool goOn(Launch& own) {
  bool isAny = false, waitsElsewhere = own.blocks.size() > 1;
  unsigned atBarrier = 0;
  for (unsigned rank = 0; rank < own.blocks.size(); ++rank) {
    Thread* members = own.threadsOf(rank);
    const Waiting waiting = countWaiting(own, members);
    isAny = isAny || waiting.ready > 0;
    waitsElsewhere = waitsElsewhere || waiting.elsewhere > 0;
    atBarrier += waiting.atBarrier;
    if (waiting.atBarrier < own.threadCount) continue;
    if (!waiting.isSameLine) {
      const std::string name = own.kernel->name, count = std::to_string(own.threadCount);
      own.fault = {launchFailed, name + ": " + count + " of " + count + " threads wait at a barrier, and not all at the same"};
      return false;
    }
    for (unsigned index = 0; index < own.threadCount; ++index) members[index].state = State::ready;
    isAny = true;
  }
  // Copies that started in the past load the bytes of that time.
  if (isAny || deliverCopy(own) || endPrevious(own)) return true;
  const auto hasLeft = [](const Block& block) { return block.left > 0; };
  if (own.fault.status != success || std::none_of(own.blocks.begin(), own.blocks.end(), hasLeft)) return false;
  const std::string ofBlock =
      ": " + std::to_string(atBarrier) + " of " + std::to_string(own.threadCount) + " threads wait at a barrier";
  own.fault = {launchFailed, own.kernel->name + (waitsElsewhere ? describeStall(own) : ofBlock)};
  return false;
}

/** Runs the blocks of a cluster concurrently, starting with this block of the grid. */
void runCluster(Launch& own, unsigned first) {
  const unsigned size = static_cast<unsigned>(own.blocks.size());
  own.clusterArrived = 0;
  for (unsigned rank = 0; rank < size; ++rank) {
    // In reverse order, the last block of a cluster still has the last rank.
    startBlock(own, rank, own.isReversed ? first + size - 1 - rank : first + rank);
    for (unsigned thread = 0; thread < own.threadCount; ++thread) {
      const unsigned index = rank * own.threadsApart + thread;
      own.threads[index] = {};
      own.threads[index].stackPointer = prepareFiber(stacks.top(index), startThread);
    }
  }
  own.isInPast = own.isPdl;
  if (own.isInPast) enterPast();
  const unsigned warps = own.threadsApart / warpSize;
  do {
    for (unsigned step = 0; step < warps * size && own.fault.status == success; ++step) {
      const unsigned warp = own.isReversed ? warps * size - 1 - step : step, rank = warp / warps;
      enterBlock(own, rank);
      runWarp(own, warp * warpSize, std::min((warp + 1) * warpSize, rank * own.threadsApart + own.threadCount));
    }
  } while (own.fault.status == success && goOn(own));
  endPrevious(own);
}

/**
 * The address of dynamic shared memory: in the module, or, if blocks run concurrently, in memory of each
 * block.
 */
void placeLaunchedMemory(Launch& own, unsigned bytes) {
  const EmulatorModule& module = *own.module;
  own.hasOwnMemory = module.launchedStart == module.launchedEnd && bytes > 0;
  own.launchedBytes = own.hasOwnMemory ? bytes : static_cast<uint64_t>(module.launchedEnd - module.launchedStart);
  own.launched = own.hasOwnMemory ? prepareClusterMemory(bytes) : reinterpret_cast<uint64_t>(module.launchedStart);
}

}  // namespace

Fault runGrid(const EmulatorModule& module, const EmulatorKernel& kernel, const Grid& grid, void** arguments) {
  const auto [blocks, threads, sharedBytes, isPdl] = grid;
  catchSignals();
  *module.hooks = {hookBarrier,         hookExchange,     hookFault, hookMeet,
                   hookArriveInCluster, hookAwaitCluster, hookGate,  hookBring,
                   hookBringBox,        hookAwaitPrevious, hookMultiplyTiles, hookMultiplyRs};
  Launch own;
  own.module = &module;
  own.kernel = &kernel;
  own.arguments = arguments;
  own.blockCount = blocks;
  own.threadCount = threads;
  own.threadsApart = (threads + warpSize - 1) / warpSize * warpSize;
  own.isReversed = setting("reversed") != 0;
  own.isPdl = isPdl && hasPast();
  own.blocks.resize(kernel.clusterSize);
  placeLaunchedMemory(own, sharedBytes);
  *module.place = {{0, 0, 0}, {0, 0, 0},          {threads, 1, 1}, {blocks, 1, 1},
                   0,         kernel.clusterSize, own.launched,    own.launchedBytes};
  launch = &own;
  // All threads of a PDL launch wait for the preceding one.
  if (kernel.isCooperative || kernel.clusterSize > 1 || own.isPdl) {
    own.threads.resize(kernel.clusterSize * own.threadsApart);
    for (unsigned block = 0; block < blocks && own.fault.status == success; block += kernel.clusterSize) {
      runCluster(own, block);
    }
  } else {
    emulator_switch(&own.scheduler, prepareFiber(stacks.top(0), startPlainBlocks));
  }
  launch = nullptr;
  return own.fault;
}

}  // namespace emulator
