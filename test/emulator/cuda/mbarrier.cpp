/**
 * An mbarrier's state is in its eight bytes: the incomplete phase, the arrivals of a phase, and the missing
 * arrivals and bytes. A copy completes at once, so that a thread that still reads the overwritten bytes is
 * found. If threads run in reverse order, it completes when no thread can continue without it, so that a
 * thread that reads too early is found. A copy from shared memory is also made at once, or, in reverse order, when its thread waits for it.
 */
#include "mbarrier.h"

#include <cstring>

#include "memory.h"
#include "status.h"

namespace emulator {

namespace {

constexpr unsigned maxArrivals = (1 << 20) - 1;
constexpr long long maxBytes = (1 << 20) - 1;

struct MbarrierState {
  uint64_t phase : 1, arrivals : 20, missing : 20;
  /** Below zero if bytes arrived before they were expected. */
  int64_t bytes : 21;
  /** `isInitialised` in an initialised mbarrier; unwritten memory has another value there. */
  uint64_t mark : 2;
};
static_assert(sizeof(MbarrierState) == 8, "an mbarrier has eight bytes");
constexpr uint64_t isInitialised = 1;

MbarrierState stateOf(const uint64_t* mbarrier) {
  MbarrierState state;
  std::memcpy(&state, mbarrier, sizeof state);
  return state;
}

/** The block whose dynamic shared memory contains the whole range; -1 for none. */
int ownerOf(const Launch& current, const void* address, unsigned bytes) {
  for (unsigned rank = 0; rank < current.blocks.size(); ++rank) {
    const uint64_t offset = reinterpret_cast<uint64_t>(address) - current.dynamicSharedOf(rank);
    if (offset < current.dynamicSharedBytes && bytes <= current.dynamicSharedBytes - offset) return static_cast<int>(rank);
  }
  return -1;
}

/**
 * What arrives at an mbarrier: arrivals, and bytes to expect (or, below zero, arrived bytes). Returns the
 * error, or nullptr.
 */
const char* change(Launch& current, uint64_t* mbarrier, bool isArrival, long long bytes) {
  MbarrierState state = stateOf(mbarrier);
  if (state.mark != isInitialised) return "an mbarrier that was not initialised";
  if (isArrival && state.missing == 0) return "more arrivals at an mbarrier than its phase takes";
  const long long left = state.bytes + bytes;
  if (left > maxBytes || left < -maxBytes) return "more bytes at an mbarrier than it can count";
  state.missing -= isArrival ? 1 : 0;
  state.bytes = left;
  const bool isComplete = state.missing == 0 && left == 0;
  if (isComplete) {
    state.phase ^= 1;
    state.missing = state.arrivals;
  }
  std::memcpy(mbarrier, &state, sizeof state);
  if (!isComplete) return nullptr;
  Thread* members = current.threadsOf(static_cast<unsigned>(ownerOf(current, mbarrier, sizeof state)));
  for (unsigned index = 0; index < current.threadCount; ++index) {
    if (members[index].state == State::atMbarrier && members[index].mbarrier == mbarrier) members[index].state = State::ready;
  }
  return nullptr;
}

const char* deliver(Launch& current, const Copy& copy) {
  if (copy.from) std::memcpy(copy.to, copy.from, copy.bytes);
  else copyBox(copy.to, copy.map, copy.corner);
  return change(current, copy.mbarrier, false, -static_cast<long long>(copy.bytes));
}

/** Starts a copy to the block's own dynamic shared memory. */
void begin(const Copy& copy, int line) {
  Launch& current = *launch;
  const int rank = static_cast<int>(copy.rank);
  if (reinterpret_cast<uint64_t>(copy.mbarrier) % 8 != 0) failInLine(misalignedAddress, "a copy at a misaligned address", line);
  if (ownerOf(current, copy.to, copy.bytes) != rank || ownerOf(current, copy.mbarrier, sizeof *copy.mbarrier) != rank) {
    failInLine(illegalAddress, "a copy that does not go to the block's dynamic shared memory", line);
  }
  if (current.isReversed) {
    current.copies.push_back(copy);
    return;
  }
  const char* wrong = deliver(current, copy);
  if (wrong) failInLine(launchFailed, wrong, line);
}

void mbarrierInit(uint64_t* mbarrier, unsigned arrivals, int line) {
  if (arrivals == 0 || arrivals > maxArrivals) {
    failInLine(launchFailed, "an mbarrier for " + std::to_string(arrivals) + " arrivals", line);
  }
  MbarrierState state = {0, arrivals, arrivals, 0, isInitialised};
  std::memcpy(mbarrier, &state, sizeof state);
}

void mbarrierWait(uint64_t* mbarrier, unsigned parity, int line) {
  if (parity > 1) failInLine(launchFailed, "a parity that is neither 0 nor 1", line);
  Thread& thread = launch->threads[launch->running];
  for (;;) {
    const MbarrierState state = stateOf(mbarrier);
    if (state.mark != isInitialised) failInLine(launchFailed, "an mbarrier that was not initialised", line);
    if (state.phase != parity) return;
    thread.state = State::atMbarrier;
    thread.mbarrier = mbarrier;
    thread.line = line;
    // Tests again after resuming: the mbarrier may have advanced by another phase, and a late thread
    // continues to wait.
    leaveKernel(thread);
  }
}

}  // namespace

void hookMbarrier(EmulatorMbarrierOp op, unsigned long long* address, unsigned number, int line) {
  auto* mbarrier = reinterpret_cast<uint64_t*>(address);
  const int owner = ownerOf(*launch, mbarrier, sizeof *mbarrier);
  if (reinterpret_cast<uint64_t>(mbarrier) % 8 != 0) failInLine(misalignedAddress, "an mbarrier at a misaligned address", line);
  if (owner < 0) failInLine(illegalAddress, "an mbarrier outside dynamic shared memory", line);
  const bool isLocal = owner == static_cast<int>(launch->module->position->rank);
  if (!isLocal && (op == emulatorMbarrierInit || op == emulatorMbarrierWait)) {
    failInLine(illegalAddress, "an mbarrier of a peer, which accepts only arrivals", line);
  }
  if (op == emulatorMbarrierInit) return mbarrierInit(mbarrier, number, line);
  if (op == emulatorMbarrierWait) return mbarrierWait(mbarrier, number, line);
  const char* wrong = change(*launch, mbarrier, true, number);
  if (wrong) failInLine(launchFailed, wrong, line);
}

void hookCpAsyncBulk(void* to, const void* from, unsigned bytes, unsigned long long* mbarrier, int line) {
  if ((reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from) | bytes) % 16 != 0) {
    failInLine(misalignedAddress, "a copy at a misaligned address", line);
  }
  if (!holdsDevice(reinterpret_cast<uint64_t>(from), bytes)) {
    failInLine(illegalAddress, "a copy from memory that is not device memory", line);
  }
  begin({to, from, bytes, reinterpret_cast<uint64_t*>(mbarrier), launch->module->position->rank, {}, {}}, line);
}

void hookTmaLoad(void* to, const void* mapAddress, int column, int row, int matrix, unsigned long long* mbarrier, int line) {
  TensorMap map;
  std::memcpy(&map, mapAddress, sizeof map);
  const Corner corner = {column, row, matrix};
  if (const char* wrong = findFaultOf(map)) failInLine(launchFailed, wrong, line);
  // The pattern of swizzled rows starts here.
  if (reinterpret_cast<uint64_t>(to) % 1024 != 0) failInLine(misalignedAddress, "a box at a misaligned address", line);
  if (!holdsBox(map, corner)) failInLine(illegalAddress, "a copy from memory that is not device memory", line);
  begin({to, nullptr, boxBytesOf(map), reinterpret_cast<uint64_t*>(mbarrier), launch->module->position->rank, map, corner}, line);
}

void hookTmaStore(const void* mapAddress, const void* from, int column, int row, int matrix, int line) {
  Launch& current = *launch;
  TensorMap map;
  std::memcpy(&map, mapAddress, sizeof map);
  const Corner corner = {column, row, matrix};
  if (const char* wrong = findFaultOf(map)) failInLine(launchFailed, wrong, line);
  if (reinterpret_cast<uint64_t>(from) % 1024 != 0) failInLine(misalignedAddress, "a box at a misaligned address", line);
  if (!holdsBox(map, corner)) failInLine(illegalAddress, "a copy to memory that is not device memory", line);
  if (ownerOf(current, from, boxBytesOf(map)) != static_cast<int>(current.module->position->rank)) {
    failInLine(illegalAddress, "a copy that is not of the block's dynamic shared memory", line);
  }
  const BoxStore store = {current.running, 0, from, map, corner};
  if (!current.isReversed) storeBox(map, corner, from);
  current.stores.push_back(store);
}

void hookBulkCommit() {
  const unsigned group = ++launch->threads[launch->running].commits;
  for (BoxStore& store : launch->stores) {
    if (store.thread == launch->running && store.group == 0) store.group = group;
  }
}

void hookBulkWaitRead(unsigned pending) {
  Launch& current = *launch;
  const unsigned commits = current.threads[current.running].commits;
  std::vector<BoxStore> left;
  for (const BoxStore& store : current.stores) {
    const bool isPending = store.thread != current.running || store.group == 0 || store.group + pending > commits;
    if (isPending) left.push_back(store);
    else if (current.isReversed) storeBox(store.map, store.corner, store.from);
  }
  current.stores.swap(left);
}

bool hasStores(const Launch& current) {
  for (const BoxStore& store : current.stores) {
    if (store.thread == current.running) return true;
  }
  return false;
}

bool deliverCopy(Launch& current) {
  if (current.copies.empty()) return false;
  const Copy copy = current.copies.back();
  current.copies.pop_back();
  const char* wrong = deliver(current, copy);
  if (wrong) current.fault = {launchFailed, std::string(current.kernel->name) + ": " + wrong};
  return wrong == nullptr;
}

bool hasCopiesFor(const Launch& current, unsigned rank) {
  for (const Copy& copy : current.copies) {
    if (copy.rank == rank) return true;
  }
  return false;
}

std::string describeMbarrier(const uint64_t* mbarrier) {
  const MbarrierState state = stateOf(mbarrier);
  return "lacks " + std::to_string(state.missing) + " of " + std::to_string(state.arrivals) + " arrivals and " +
         std::to_string(state.bytes) + " bytes";
}

}  // namespace emulator
